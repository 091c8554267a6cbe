"""Functions that tests launch: importable by name, in the ranks as in the tests."""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NoReturn

import spawnlaunch


class Stubborn(Exception):
    """It cannot be made of its arguments."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} {two}")


class Sealed(Exception):
    """It cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("sealed")
        self.lock = threading.Lock()


def greet(name: str) -> tuple[str, Any, set[int]]:
    print(f"{name} is printed")
    print("and complains", file=sys.stderr)
    return name, spawnlaunch.current_world(), os.sched_getaffinity(0)


def sized(count: int) -> bytes:
    return os.environ["RANK"].encode() * count


def throws(error: BaseException) -> NoReturn:
    raise error


FAILURES: dict[str, Callable[[], object]] = {
    "value": lambda: throws(ValueError("bad")),
    "stubborn": lambda: throws(Stubborn("a", "b")),
    "sealed": lambda: throws(Sealed()),
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "os._exit": lambda: os._exit(0),
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "sys.exit": sys.exit,
    "waits": lambda: time.sleep(3600),
}


def fails(how: str) -> None:
    """The last rank ends in that way; others wait for it, and end with 0 when they are told to."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if int(os.environ["RANK"]) + 1 == int(os.environ["WORLD_SIZE"]):
        FAILURES[how]()
    time.sleep(3600)


async def soon(number: int) -> int:
    await asyncio.sleep(0)
    return number


async def several() -> AsyncIterator[int]:
    yield 1


def locked() -> object:
    return threading.Lock()


def second_time(directory: str) -> int:
    """Fails, until it is started again."""
    world = spawnlaunch.current_world()
    Path(directory, f"{world.restart}.{world.rank}").touch()
    if not world.restart:
        raise ValueError("once")
    return world.restart


def sleeping(directory: str) -> None:
    """Say that it runs, and go on for ever; leave word of being told to end."""
    told = Path(directory, f"told {os.environ['RANK']}")
    signal.signal(signal.SIGTERM, lambda *_: (told.touch(), sys.exit(3)))
    print("ready", flush=True)
    while True:  # a signal just before a sleep begins is heeded when it ends
        time.sleep(0.1)

"""Functions that tests launch: importable by name, in the ranks as in the tests."""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator
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


def greet(name: str) -> str:
    world = spawnlaunch.current_world()
    assert world is not None
    print(f"{name} is printed")
    print("and complains", file=sys.stderr)
    return f"{name} {world.rank} of {world.size}"


def where() -> tuple[Any, set[int]]:
    return spawnlaunch.current_world(), os.sched_getaffinity(0)


def sized(count: int) -> bytes:
    return os.environ["RANK"].encode() * count


def unlucky(rank: int, kind: str) -> None:
    """One rank fails, the others wait for it."""
    if int(os.environ["RANK"]) != rank:
        time.sleep(3600)
    failures = {
        "value": ValueError("bad"),
        "stubborn": Stubborn("a", "b"),
        "sealed": Sealed(),
    }
    if kind in failures:
        raise failures[kind]
    os.kill(os.getpid(), signal.SIGKILL)


def leaving(how: str) -> None:
    """Rank 1 ends, as if all were well, and the other waits for it."""
    if os.environ["RANK"] == "1":
        ends = {"os._exit": os._exit, "sys.exit": sys.exit, "nothing": lambda _: sys.exit()}
        if how == "exec":
            os.execv("/bin/true", ["true"])
        ends[how](0)
    time.sleep(3600)


def leaving_on_the_second_node() -> None:
    """Rank 3 ends, and so do the others when they are told to, with 0 as well."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if os.environ["RANK"] == "3":
        os._exit(0)
    time.sleep(3600)


def throws(error: BaseException) -> NoReturn:
    raise error


def skips(how: str) -> NoReturn:
    """What pytest raises, which says of itself that it is a builtin."""
    import pytest

    getattr(pytest, how)("not here")


def in_a_chain() -> NoReturn:
    try:
        try:
            raise Stubborn("a", "b")
        except Stubborn as error:
            raise Sealed() from error
    except Sealed:
        raise ValueError("last")  # noqa: B904


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
    assert world is not None
    Path(directory, f"{world.restart}.{world.rank}").touch()
    if not world.restart:
        raise ValueError("once")
    return world.restart


def sleeping(directory: str) -> None:
    """Say that it runs, and go on for ever; leave word of being told to end."""
    told = Path(directory, f"told {os.environ['RANK']}")
    signal.signal(signal.SIGTERM, lambda *_: (told.touch(), sys.exit(3)))
    print("ready", flush=True)
    time.sleep(3600)

"""The state of imported libraries that forks inherit: threads, devices, random numbers.

A fork takes one thread along. A lock or a device that another thread held at that moment is lost in
the child. Threads that end before a fork and are started again when they are needed (by handlers of
pthread_atfork(3)) are no danger: another fork, of a child that ends at once, shows which they are.

Python's random and numpy's legacy generator are seeded at their import, torch's default generators
when the library is loaded, and multiprocessing draws a key. A worker that is forked draws all of
them again. A seed that a preloaded module has set, as by torch.manual_seed(0), stays: the
import would do so in every fresh process. Generators that a module makes for itself at its import,
and the hashes of strings (PYTHONHASHSEED), are the same in all workers of an image.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress

from spawnlaunch.base import machine, records
from spawnlaunch.node import proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/render")
HARMLESS_THREADS = ("jemalloc_bg_thd",)  # started again in a child by itself
WORDS = 624  # of the state of a Mersenne twister, after which it begins another round
MOST_ROUNDS = 1000  # that modules may have drawn at their import
# A seed of torch's own has 64 bits of entropy. Who seeds on purpose takes a smaller number; one of
# a clock in nanoseconds is larger too, and as much another one in every fresh process.
LEAST_ENTROPY = 1 << 32


def objections() -> Iterator[str]:
    """The reasons why this process must not be forked, if there are any."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        yield "CUDA is initialised"
    for fd in proc.open_fds():
        target = ""
        with suppress(OSError):
            target = machine.readlink(f"/proc/self/fd/{fd}")
        if target.startswith(DEVICES):
            yield f"{target} is open, the driver of a device"
    main = threading.main_thread()
    python = [thread.name for thread in threading.enumerate() if thread is not main]
    if python:
        yield f"there is a thread {python[0]!r}"
    if len(_native_threads()) > len(python):
        machine.waitpid(machine.fork(lambda: machine.exit_now(0)), 0)
        if (left := len(_native_threads())) > len(python):
            yield f"there are {left} threads that outlive a fork, and are not Python's"


def _native_threads() -> list[str]:
    """The names of all threads but the main thread and harmless ones."""
    try:
        main = machine.readlink("/proc/self")  # which is not our pid in another namespace's /proc
        threads = [name for name in machine.listdir("/proc/self/task") if name != main]
    except OSError:
        return []
    names = (proc.read(f"self/task/{thread}", "comm") for thread in threads)
    found = [name.strip() for name in names if name]  # None: it has just ended
    return [name for name in found if name not in HARMLESS_THREADS]


def set_threads(count: int) -> None:
    """Make torch compute with `count` threads from now on."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(count)


# Random numbers


class Seeded(records.NamedTuple):
    """The generators that the modules have seeded on purpose."""

    random: tuple[Any, ...] | None  # the state
    numpy: bool
    torch: bool


def seeded_since(before: tuple[Any, ...]) -> Seeded:
    """Return what the import has seeded; `before` is the state of random before the import."""
    now = random.getstate()
    numpy, torch, is_numpy_seeded = sys.modules.get("numpy"), sys.modules.get("torch"), False
    if numpy is not None:
        generator = numpy.random.get_bit_generator()
        is_fresh = type(generator) is numpy.random.MT19937 and generator.seed_seq is not None
        is_numpy_seeded = not is_fresh
    return Seeded(
        random=None if _is_later(before[1][:WORDS], now[1][:WORDS]) else now,
        numpy=is_numpy_seeded,
        torch=torch is not None and torch.initial_seed() < LEAST_ENTROPY,
    )


def draw_anew(seeded: Seeded) -> None:
    """Draw in a forked worker the seeds that a fresh process would have drawn.

    os.fork has seeded random.
    """
    if seeded.random is not None:
        random.setstate(seeded.random)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and not seeded.numpy:
        numpy.random.seed()
    if torch is not None and not seeded.torch:
        torch.seed()  # of all devices: those that are not initialised, when they will be
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.current_process().authkey = machine.urandom(32)
    uuid = sys.modules.get("uuid")
    if uuid is not None:
        uuid.__dict__.update(_node=None, _last_timestamp=None)  # drawn where there is no MAC


def _is_later(before: Sequence[int], now: Sequence[int]) -> bool:
    """Whether a Mersenne Twister gets from one state to the other by drawing alone."""
    twister = random.Random()
    twister.setstate((3, (*before, WORDS), None))  # 3: random's VERSION
    for _ in range(MOST_ROUNDS):
        if twister.getstate()[1][:WORDS] == tuple(now):
            return True
        twister.getrandbits(32 * WORDS)
    return False

"""What libraries that were imported once leave to forks: threads, devices, random numbers.

A fork takes one thread along. What another thread held at that moment, a lock or a device, is lost
in the child. Threads of OpenBLAS are no danger: it ends them before a fork and starts them anew
when they are needed (its pthread_atfork handlers).

Python's random and numpy's legacy generator are seeded at their import, torch's default generators
when the library is loaded, and multiprocessing draws a key. A worker that is forked draws all of
them anew. What a preloaded module has seeded itself, as with torch.manual_seed(0), stays: the
import would do so in every fresh process. Generators that a module makes for itself at its import,
and the hashes of strings (PYTHONHASHSEED), are the same in all workers of an image.
"""

from __future__ import annotations

import random
import sys
import threading
from contextlib import suppress

from spawnlaunch import machine, records
from spawnlaunch.node import proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType
    from typing import Any

DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/render")
HARMLESS_THREADS = ("jemalloc_bg_thd",)  # started anew in a child by itself
# Functions of OpenBLAS, {} is the verb; with scipy_ in numpy's and scipy's wheels.
OPENBLAS = tuple(
    f"{prefix}openblas_{{}}_num_threads{suffix}"
    for prefix in ("scipy_", "")
    for suffix in ("64_", "64", "_", "")
)
WORDS = 624  # of the state of a Mersenne twister, after which it begins another round
MOST_ROUNDS = 1000  # that modules may have drawn at their import
# A seed of torch's own has 64 bits of entropy. Who seeds on purpose takes a smaller number; one of
# a clock in nanoseconds is larger too, and as much another one in every fresh process.
LEAST_ENTROPY = 1 << 32


def objections() -> Iterator[str]:
    """Why this process must not be forked, if there is anything."""
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
    native = [name for name in _native_threads() if name not in HARMLESS_THREADS]
    idle = sum(copy.threads - 1 for copy in copies_of_openblas())
    if len(native) > len(python) + idle:
        yield f"there are {len(native)} threads that are neither Python's nor OpenBLAS's"


def _native_threads() -> list[str]:
    """The names of all threads but the main one."""
    try:
        main = machine.readlink("/proc/self")  # which is not our pid in another namespace's /proc
        threads = [name for name in machine.listdir("/proc/self/task") if name != main]
    except OSError:
        return []
    names = (proc.read(f"self/task/{thread}", "comm") for thread in threads)
    return [name.strip() for name in names if name]  # None: it has just ended


# Threads


class OpenBlas(records.NamedTuple):
    """A copy of OpenBLAS; numpy and scipy bring one each."""

    library: Any  # ctypes.CDLL
    name: str  # of its functions, with {} for the verb

    @property
    def threads(self) -> int:
        """How many threads it computes with."""
        return int(getattr(self.library, self.name.format("get"))())

    def set_threads(self, count: int) -> None:
        """Compute with so many from now on."""
        getattr(self.library, self.name.format("set"))(count)


def copies_of_openblas() -> Iterator[OpenBlas]:
    """Every copy that this process has mapped."""
    import ctypes

    maps = (proc.read("self", "maps") or "").split("\n")
    for path in {line.split()[-1] for line in maps if "openblas" in line and ".so" in line}:
        library = ctypes.CDLL(path)
        name = next((name for name in OPENBLAS if hasattr(library, name.format("get"))), None)
        if name:
            yield OpenBlas(library, name)


def set_threads(count: int) -> None:
    """Compute with as many threads as if OMP_NUM_THREADS had said so at the import."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(count)
    for library in copies_of_openblas():
        library.set_threads(count)


# Random numbers


class Seeded(records.NamedTuple):
    """What was seeded on purpose by the modules."""

    random: tuple[Any, ...] | None  # the state
    numpy: bool
    torch: bool


def seeded_since(before: tuple[Any, ...]) -> Seeded:
    """What the import has seeded; `before` it random was in that state."""
    now = random.getstate()
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    return Seeded(
        random=None if _is_later(before[1][:WORDS], now[1][:WORDS]) else now,
        numpy=numpy is not None and _is_numpy_seeded(numpy),
        torch=torch is not None and torch.initial_seed() < LEAST_ENTROPY,
    )


def draw_anew(seeded: Seeded) -> None:
    """In a forked worker: what a fresh process would have drawn. os.fork has seeded random."""
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


def _is_numpy_seeded(numpy: ModuleType) -> bool:
    generator = numpy.random.mtrand._rand._bit_generator
    if type(generator) is not numpy.random.MT19937 or generator.seed_seq is None:
        return True
    first = numpy.random.MT19937(generator.seed_seq)
    before, now = (each.state["state"]["key"].tolist() for each in (first, generator))
    return not _is_later(before, now)


def _is_later(before: Sequence[int], now: Sequence[int]) -> bool:
    """Whether a twister comes from one state to the other by drawing alone."""
    twister = random.Random()
    twister.setstate((3, (*before, WORDS), None))  # 3: random's VERSION
    for _ in range(MOST_ROUNDS):
        if twister.getstate()[1][:WORDS] == tuple(now):
            return True
        twister.getrandbits(32 * WORDS)
    return False

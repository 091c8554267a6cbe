"""Workloads of the CPU and its memory: compute, triad and jitter."""

import gc
import os
import time
from pathlib import Path

import torch

from spawnlaunch.base import cpuset
from spawnlaunch.bench.workloads import timing

SIZE = 256  # three matrices of float32 are 768 KiB
PRODUCTS = 20  # in a step, so that reading the clock costs nothing

ARRAYS = 3  # of triad: a, b and c
TIMES_CACHE = 4  # the size of all arrays of a node, in L3 caches
LEAST_BYTES = 64 * 2**20  # of an array
SHARE_OF_MEMORY = 4  # of what is available, all ranks together take one part in so many at most

CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index3")  # of size "32768K"
MEMORY = Path("/proc/meminfo")


def compute(rank: timing.Rank) -> dict[str, float]:
    """GFLOP/s of products of matrices that fit the caches of a core.

    A product is 2 * SIZE**3 operations; only time on a core counts.
    """
    a, b = torch.rand(2, SIZE, SIZE)
    c = torch.empty(SIZE, SIZE)

    def step() -> None:
        for _ in range(PRODUCTS):
            torch.mm(a, b, out=c)

    return {"": timing.steps_per_second(rank, step) * PRODUCTS * 2 * SIZE**3 / 1e9}


def jitter(rank: timing.Rank) -> dict[str, float]:
    """The longest gap in microseconds between two clock readings of a thread that never waits.

    The system, other ranks on the same core, and other users make such gaps.
    """
    clock = time.perf_counter_ns
    gc.disable()
    rank.barrier()
    rank.watch.start()
    end = clock() + int(rank.seconds * 1e9)
    longest, before = 0, clock()
    while before < end:
        now = clock()
        if now - before > longest:
            longest = now - before
        before = now
    rank.watch.stop()
    return {"": longest / 1e3}


def triad(rank: timing.Rank) -> dict[str, float]:
    """GB/s of memory bandwidth by STREAM's triad, a = b + s * c.

    The arrays are made here, after the process was bound, and first touched by the threads that go
    through them. They have to be larger than the caches: STREAM asks for four times their size for
    each array (cs.virginia.edu/stream, "Run Rules"); here the arrays of all ranks together have it,
    for each sample makes new ones, and to touch them takes longer than to go through them. Three
    transfers are counted for each element, as STREAM does, though many processors read `a` too
    before it is written.
    """
    caches = cache_bytes(CACHE, os.cpu_count() or 1)
    size = array_bytes(rank.local_size, caches, _available_bytes())
    a, b, c = (torch.ones(size // 4) for _ in range(ARRAYS))
    rate = timing.steps_per_second(rank, lambda: torch.add(b, c, alpha=3.0, out=a))
    return {"": rate * ARRAYS * size / 1e9}


def array_bytes(ranks: int, cache: int, available: int) -> int:
    """Bytes of an array of one of the ranks on a node; a multiple of 4."""
    wanted = max(LEAST_BYTES, TIMES_CACHE * cache // ranks // ARRAYS)
    at_most = available // SHARE_OF_MEMORY // ranks // ARRAYS
    return min(wanted, at_most) // 4 * 4


def cache_bytes(cache: Path, online: int) -> int:
    """The bytes of all L3 caches of a node, if each is like that of CPU 0; 0 if unknown."""
    try:
        size = int((cache / "size").read_text().strip().removesuffix("K")) * 1024
        sharing = len(cpuset.parse((cache / "shared_cpu_list").read_text()))
    except (OSError, ValueError):
        return 0
    return size * max(1, round(online / max(1, sharing)))


def _available_bytes() -> int:
    """MemAvailable of proc(5) in bytes; if unknown, enough for arrays of the least size."""
    try:
        lines = MEMORY.read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvail"))
    except (OSError, StopIteration):
        return 2**40

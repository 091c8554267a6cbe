"""Memory bandwidth by STREAM's triad, a = b + s * c.

The arrays are made here, after the process has taken its seat, and first touched by the threads
that go through them. They have to be larger than the caches: STREAM asks for four times their size
for each array (cs.virginia.edu/stream, "Run Rules"); here the arrays of all ranks together have it,
for a sample makes them anew, and to touch them takes longer than to go through them. Counted are
three transfers for each element, as STREAM does, though many processors read `a` too before it is
written.
"""

import os
from pathlib import Path

import torch

from spawnlaunch import cpuset
from spawnlaunch.bench.gang import Gang, steps_per_second

ARRAYS = 3
TIMES_CACHE = 4  # the size of all arrays of a node, in L3 caches
LEAST_BYTES = 64 * 2**20  # of an array
SHARE_OF_MEMORY = 4  # of what is available, all ranks together take one part in so many at most

CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index3")  # of size "32768K"
MEMORY = Path("/proc/meminfo")


def missing(_gang: Gang) -> str | None:
    return None


def measure(gang: Gang) -> dict[str, float]:
    """GB/s of this rank."""
    size = array_bytes(gang.local_size, cache_bytes(CACHE, os.cpu_count() or 1), _available_bytes())
    a, b, c = (torch.ones(size // 4) for _ in range(ARRAYS))
    rate = steps_per_second(gang, lambda: torch.add(b, c, alpha=3.0, out=a))
    return {"": rate * ARRAYS * size / 1e9}


def array_bytes(ranks: int, cache: int, available: int) -> int:
    """Bytes of an array of one of the ranks on a node; a multiple of 4."""
    wanted = max(LEAST_BYTES, TIMES_CACHE * cache // ranks // ARRAYS)
    at_most = available // SHARE_OF_MEMORY // ranks // ARRAYS
    return min(wanted, at_most) // 4 * 4


def cache_bytes(cache: Path, online: int) -> int:
    """All L3 caches of a node, as if each were like that of CPU 0; 0 where it is not known."""
    try:
        size = int((cache / "size").read_text().strip().removesuffix("K")) * 1024
        sharing = len(cpuset.parse((cache / "shared_cpu_list").read_text()))
    except (OSError, ValueError):
        return 0
    return size * max(1, round(online / max(1, sharing)))


def _available_bytes() -> int:
    """proc(5), MemAvailable; where that is not known, enough for arrays of the least size."""
    try:
        lines = MEMORY.read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvail"))
    except (OSError, StopIteration):
        return 2**40

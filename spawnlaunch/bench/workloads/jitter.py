"""How long a thread that never waits is kept from its core at the longest.

What it meets there is the system, other ranks on the same core, and other users.
"""

import gc
import time

from spawnlaunch.bench.gang import Gang


def missing(_gang: Gang) -> str | None:
    return None


def measure(gang: Gang) -> dict[str, float]:
    """The longest gap between two looks at the clock, in microseconds."""
    clock = time.perf_counter_ns
    gc.disable()
    gang.barrier()
    end = clock() + int(gang.seconds * 1e9)
    longest, before = 0, clock()
    while before < end:
        now = clock()
        if now - before > longest:
            longest = now - before
        before = now
    return {"": longest / 1e3}

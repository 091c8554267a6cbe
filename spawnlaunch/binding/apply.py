"""Take the seat: CPU mask and memory policy of this process, before it becomes the worker.

Both are inherited over exec and fork: by every thread the worker starts later, and by its
DataLoader workers. Nothing here is fatal: what the system refuses is a line to print.
"""

import os

from spawnlaunch import cpuset
from spawnlaunch.binding import mempolicy
from spawnlaunch.binding.plan import Binding
from spawnlaunch.values import BIND_MEM, NO_MEM


def pin(binding: Binding) -> str | None:
    """Pin this process; the result is what could not be done, if anything."""
    if not binding.cpus or not hasattr(os, "sched_setaffinity"):
        return None
    asked = cpuset.format(binding.cpus)
    try:
        os.sched_setaffinity(0, binding.cpus)
    except OSError as error:
        return f"CPUs {asked} were refused ({error.strerror}): the mask stays as it was"
    got = frozenset(os.sched_getaffinity(0))
    if got != binding.cpus:  # the kernel leaves out what the cpuset does not hold, without a word
        return f"of the CPUs {asked} the system gave {cpuset.format(got)}"
    return None


def place_memory(binding: Binding, mem_bind: str) -> str | None:
    """Set the memory policy: "preferred", "bind" or "none"; the result is a refusal, if any."""
    if mem_bind == NO_MEM or not binding.cpus:
        return None
    if mem_bind == BIND_MEM:
        return mempolicy.bind(binding.memory_nodes)
    return mempolicy.prefer(binding.memory_nodes)

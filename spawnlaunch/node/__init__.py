"""What is this machine: for now, the CPUs that this process may use."""

import os
from typing import NamedTuple


class Node(NamedTuple):
    """One machine, as far as it was read."""

    cpus_allowed: frozenset[int]  # empty where the system has no CPU affinity, as macOS
    cpu_count: int  # CPUs that the workers can use, pinned or not


def read() -> Node:
    """Read this machine."""
    if hasattr(os, "sched_getaffinity"):
        allowed = frozenset(os.sched_getaffinity(0))
        return Node(allowed, len(allowed))
    return Node(frozenset(), os.cpu_count() or 1)

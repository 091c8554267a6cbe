"""The CPUs of all ranks of a node, for work of one rank while the others wait."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from spawnlaunch.base import cpuset

NODE_CPUS = "SPAWNLAUNCH_NODE_CPUS"  # set by the launcher, as the kernel writes lists of CPUs


@contextmanager
def node_cpus() -> Iterator[None]:
    """Let this process use all CPUs of the node's ranks; see `spawnlaunch.node_cpus`."""
    cpus = os.environ.get(NODE_CPUS, "")
    before = os.sched_getaffinity(0) if cpus and hasattr(os, "sched_getaffinity") else None
    if before is None:
        yield
        return
    with suppress(OSError, ValueError):  # the cpuset has changed, or another program set this
        os.sched_setaffinity(0, cpuset.parse(cpus) | before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)

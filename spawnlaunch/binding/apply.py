"""Bind this process, before it becomes the worker: its CPU mask and its memory policy.

Both are inherited over exec and fork: by every thread the worker starts later, and by its
DataLoader workers. Nothing here is fatal: what the system refuses is a line to print.

The memory policy is set and read by system call: no libnuma, no numactl. Sources: set_mempolicy(2),
get_mempolicy(2); include/uapi/linux/mempolicy.h for the modes; the kernel's system call tables for
the numbers. MPOL_PREFERRED_MANY is of Linux 5.15. Containers without CAP_SYS_NICE refuse these
calls with EPERM (Docker's default seccomp profile).
"""

from __future__ import annotations

import os
import sys

from spawnlaunch import cpuset
from spawnlaunch.cpuset import CpuSet
from spawnlaunch.records import NamedTuple
from spawnlaunch.values import BIND_MEM, NO_MEM, PREFERRED_MEM

_PREFERRED, _BIND, _PREFERRED_MANY = 1, 2, 5
_MODES = ("default", "preferred", "bind", "interleave", "local", "preferred-many")

# (get_mempolicy, set_mempolicy) by the machine that uname(2) names
_CALLS = {
    "x86_64": (239, 238),
    "aarch64": (236, 237),
    "riscv64": (236, 237),
    "ppc64le": (260, 261),
    "ppc64": (260, 261),
    "s390x": (269, 270),
}
_MAX_NODES = 1024  # the kernel's largest MAX_NUMNODES
_WORD = 64


class Binding(NamedTuple):
    """Where one rank sits."""

    local_rank: int
    device: int | None  # Device.number; None: no device, or it cannot be told which
    cpus: CpuSet  # empty: not pinned
    memory_nodes: frozenset[int]  # NUMA nodes beside these CPUs; empty: leave the policy alone
    threads: int  # physical cores for this rank alone: what OMP_NUM_THREADS should be
    locality: str  # of the CPUs to the device: "local", "remote" (not all are) or "unknown"
    note: str  # what is unusual about it; empty: nothing
    mem_bind: str = PREFERRED_MEM  # how memory comes from these nodes, as --mem-bind says


class MemoryPolicy(NamedTuple):
    """The memory policy of this thread, as the kernel tells it."""

    mode: str  # "default", "preferred", "bind", "interleave", "local" or "preferred-many"
    nodes: frozenset[int]


def pin(binding: Binding) -> str | None:
    """Pin this process; the result is what could not be done, if anything."""
    if not binding.cpus or not hasattr(os, "sched_setaffinity"):
        return None
    try:
        os.sched_setaffinity(0, binding.cpus)
        got = frozenset(os.sched_getaffinity(0))
    except OSError as error:
        asked = cpuset.format(binding.cpus)
        return f"CPUs {asked} were refused ({error.strerror}): the mask stays as it was"
    if got != binding.cpus:  # the kernel leaves out what the cpuset does not hold, without a word
        return f"of the CPUs {cpuset.format(binding.cpus)} the system gave {cpuset.format(got)}"
    return None


def place_memory(binding: Binding) -> str | None:
    """Set the memory policy that the binding names; the result is a refusal, if any."""
    nodes = sorted(binding.memory_nodes)
    if binding.mem_bind == NO_MEM or not binding.cpus:
        return None
    if binding.mem_bind == BIND_MEM:
        if not nodes:
            return "no NUMA node is known for these CPUs: memory is not bound"
        error, outcome = _set(_BIND, nodes), "memory is not bound"
    else:
        if not nodes or (len(nodes) > 1 and _set(_PREFERRED_MANY, nodes) == 0):
            return None
        error, outcome = _set(_PREFERRED, nodes[:1]), "pages go where they are first touched"
    return f"the memory policy was refused ({os.strerror(error)}): {outcome}" if error else None


def memory_policy() -> MemoryPolicy | None:
    """The policy of this thread; None where it cannot be asked."""
    from array import array

    mode, words = array("i", [0]), array("Q", bytes(_MAX_NODES // 8))
    if _call(0, mode.buffer_info()[0], words.buffer_info()[0], _MAX_NODES, 0, 0):
        return None
    nodes = frozenset(
        i * _WORD + bit for i, word in enumerate(words) for bit in range(_WORD) if word >> bit & 1
    )
    known = mode[0] & 0xFF  # without the flags MPOL_F_STATIC_NODES and the like
    return MemoryPolicy(_MODES[known] if known < len(_MODES) else str(known), nodes)


def _set(mode: int, nodes: list[int]) -> int:
    """Set a policy; the error number, 0 for success."""
    mask = sum(1 << node for node in nodes)
    words = (mask >> first & (1 << _WORD) - 1 for first in range(0, _MAX_NODES, _WORD))
    as_bytes = b"".join(word.to_bytes(_WORD // 8, sys.byteorder) for word in words)
    # The kernel takes one from the number of bits before it reads the mask.
    return _call(1, mode, as_bytes, _MAX_NODES + 1)


def _call(which: int, *arguments: int | bytes) -> int:
    """One of the two calls; the error number, 0 for success."""
    import errno

    from spawnlaunch.node import kernel  # most processes need no policy

    numbers = _CALLS.get(os.uname().machine)
    if numbers is None or not kernel.IS_LINUX:
        return errno.ENOSYS
    return -kernel.call("syscall", numbers[which], *arguments)

"""Bind this process, before it becomes the worker: its CPU mask and its memory policy.

Both are inherited over exec and fork: by every thread the worker starts later, and by its
DataLoader workers. Nothing here is fatal: a refusal of the system becomes a line to print.

The memory policy is set and read by system call: no libnuma, no numactl. Sources: set_mempolicy(2),
get_mempolicy(2); include/uapi/linux/mempolicy.h for the modes; the kernel's system call tables for
the numbers. MPOL_PREFERRED_MANY is of Linux 5.15; older kernels answer EINVAL. Containers without
CAP_SYS_NICE refuse these calls with EPERM (Docker's default seccomp profile).
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from spawnlaunch.base import cpuset, machine, records
from spawnlaunch.cli import values

_PREFERRED, _BIND, _LOCAL, _PREFERRED_MANY = 1, 2, 4, 5
# The names of all modes, by number.
MODES = (
    *("default", "preferred", "bind", "interleave", "local", "preferred-many"),
    "weighted-interleave",
)
_EINVAL = 22  # errno(3), without importing errno

# (get_mempolicy, set_mempolicy) by the machine that uname(2) names
_CALLS = {
    "x86_64": (239, 238),
    "aarch64": (236, 237),
    "riscv64": (236, 237),
    "ppc64le": (260, 261),
    "s390x": (269, 270),
}
MAX_NODES = 1024  # the kernel's largest MAX_NUMNODES
WORD = 64


class Binding(records.NamedTuple):
    """The device, CPUs, memory nodes and threads of one rank."""

    local_rank: int
    device: int | None  # Device.number; None: no device, or it is not known which
    cpus: cpuset.CpuSet  # empty: not pinned
    memory_nodes: frozenset[int]  # NUMA nodes beside these CPUs; empty: leave the policy alone
    threads: int  # physical cores for this rank only: the best OMP_NUM_THREADS
    locality: str  # of the CPUs to the device: "local", "remote" (not all are) or "unknown"
    note: str  # an unusual property of the binding; empty: none
    mem_bind: str = values.PREFERRED_MEM  # how memory comes from these nodes, as in --mem-bind
    reports_memory: bool = True  # this rank reports a refused memory policy, for all ranks here


class MemoryPolicy(records.NamedTuple):
    """The memory policy of a thread, as the kernel reports it."""

    mode: str  # one of MODES
    nodes: frozenset[int]


def pin(binding: Binding) -> str | None:
    """Pin this process to its CPUs; return a line if that failed, else None."""
    if not binding.cpus or not hasattr(machine, "sched_setaffinity"):
        return None
    try:
        machine.sched_setaffinity(0, binding.cpus)
    except OSError as error:
        wanted = cpuset.format(binding.cpus)
        return f"CPUs {wanted} were refused ({error.strerror}): the mask stays as it was"
    with suppress(OSError):  # the system refuses to tell the mask
        got = frozenset(machine.sched_getaffinity(0))
        if got != binding.cpus:  # the kernel silently leaves out CPUs that the cpuset lacks
            return f"of the CPUs {cpuset.format(binding.cpus)} the system gave {cpuset.format(got)}"
    return None


def place_memory(binding: Binding) -> str | None:
    """Set the binding's memory policy; return a line if another one was set, else None."""
    nodes = sorted(binding.memory_nodes)
    if binding.mem_bind == values.NO_MEM or not binding.cpus:
        return None
    if binding.mem_bind == values.BIND_MEM:
        if not nodes:
            return "no NUMA node is known for these CPUs: memory is not bound"
        error, outcome = _set(_BIND, nodes), "memory is not bound"
    else:
        if not nodes:
            return None
        error = _set(_PREFERRED_MANY if len(nodes) > 1 else _PREFERRED, nodes)
        outcome = "pages go where they are first touched"
        # Only one of the nodes would be worse than none: the CPUs are next to all of them.
        if error == _EINVAL and len(nodes) > 1 and not (error := _set(_LOCAL, [])):
            return (
                f"the kernel refused to prefer the memory of NUMA nodes {cpuset.format(nodes)} "
                f"(Linux 5.15 and later can): {outcome} (MPOL_LOCAL)"
            )
    return f"the memory policy was refused ({os.strerror(error)}): {outcome}" if error else None


def memory_policy() -> MemoryPolicy | None:
    """The memory policy of this thread; None where the system refuses to tell it."""
    from array import array  # only needed where there are several NUMA nodes

    mode, words = array("i", [0]), array("Q", bytes(MAX_NODES // 8))
    if call(0, mode.buffer_info()[0], words.buffer_info()[0], MAX_NODES, 0, 0):
        return None
    nodes = frozenset(
        i * WORD + bit for i, word in enumerate(words) for bit in range(WORD) if word >> bit & 1
    )
    known = mode[0] & 0xFF  # without the flags MPOL_F_STATIC_NODES and the like
    return MemoryPolicy(MODES[known] if known < len(MODES) else str(known), nodes)


def _set(mode: int, nodes: list[int]) -> int:
    """Set a memory policy; return the error number, 0 for success."""
    mask = sum(1 << node for node in nodes)
    words = (mask >> first & (1 << WORD) - 1 for first in range(0, MAX_NODES, WORD))
    as_bytes = b"".join(word.to_bytes(WORD // 8, sys.byteorder) for word in words)
    # The kernel subtracts one from the number of bits before it reads the mask.
    return call(1, mode, as_bytes, MAX_NODES)


def call(which: int, *arguments: int | bytes) -> int:
    """Call get_mempolicy (0) or set_mempolicy (1); return the error number, 0 for success."""
    import errno

    numbers = _CALLS.get(machine.uname().machine)
    if numbers is None or not machine.IS_LINUX:
        return errno.ENOSYS
    return -machine.call("syscall", numbers[which], *arguments)

"""What this rank really has, looked at after torch has been at work."""

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from spawnlaunch import cpuset, nodewide, reading
from spawnlaunch.binding import apply, report
from spawnlaunch.binding.cores import count_cores
from spawnlaunch.node import hardware, sysfs, visible

# Of linux/mempolicy.h, by their numbers.
MODES = ("default", "preferred", "bind", "interleave", "local", "preferred-many")


class Facts(NamedTuple):
    """What one rank really has. CPU lists are strings as the kernel writes them."""

    rank: int
    local_rank: int
    host: str
    pid: int
    device: int | None  # number within the node's devices in address order
    device_address: str | None
    device_cpus: str | None  # CPUs next to the device; None where unknown
    device_numa: int | None
    devices_seen: int  # that the environment shows
    cpus_at_start: str  # the mask before torch was imported
    cpus: str  # the main thread's mask afterwards
    threads: tuple[str, ...]  # the different masks of all threads, the main thread's first
    loader_cpus: str  # the mask of a DataLoader worker
    cores: int  # physical cores in the main thread's mask
    cores_of_node: int  # physical cores of the machine that are online
    numa: str  # NUMA nodes of the mask
    memory: str  # memory policy: mode and nodes
    memory_near: str  # NUMA nodes of the mask that have memory
    memory_allowed: str  # NUMA nodes that this process may allocate from; "" where unknown
    omp_threads: int  # what torch computes with, or OMP_NUM_THREADS, which torch may cut
    launched: bool  # by this package's launcher
    given: str  # the CPUs that its launcher divides; without one, the mask at the start
    given_cores: int  # of these, those next to the device, where some are
    wider: str  # how to start with more of them; "" where they are all
    nearer: str  # how to start with some next to the device; "" where some are
    openmp: tuple[str, ...]  # OpenMP's variables that move threads
    oversubscribed: bool  # --oversubscribe was typed: to share is meant


class MemoryPolicy(NamedTuple):
    """The memory policy of this thread, as the kernel tells it."""

    mode: str  # "default", "preferred", "bind", "interleave", "local" or "preferred-many"
    nodes: frozenset[int]


def mask() -> frozenset[int]:
    """The CPUs of this thread; empty where the system has no masks."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def look(
    node: hardware.Node,
    rank: int,
    local_rank: int,
    at_start: frozenset[int],
    environ: Mapping[str, str],
) -> Facts:
    """Put torch to work, then look at this process."""
    loader = _loader_mask()
    omp_threads = _compute()
    now = mask()
    seen = visible.visible(node, environ)
    device = seen.device_of(local_rank)
    place = None if device is None else node.devices[device]
    local = place.local_cpus if place else None
    launched = _is_launched(environ)
    divided = environ.get(nodewide.NODE_CPUS) if launched else None
    given = at_start if divided is None else cpuset.parse(divided)
    near = given & local if local else given
    there, tasks = node._replace(cpus_allowed=given), _tasks(environ)
    return Facts(
        rank=rank,
        local_rank=local_rank,
        host=os.uname().nodename,
        pid=os.getpid(),
        device=device,
        device_address=place.address if place else None,
        device_cpus=None if local is None else cpuset.format(local),
        device_numa=place.numa if place else None,
        devices_seen=len(seen.devices),
        cpus_at_start=cpuset.format(at_start),
        cpus=cpuset.format(now),
        threads=_thread_masks(now),
        loader_cpus=cpuset.format(loader),
        cores=count_cores(node, now),
        cores_of_node=len(node.cores),
        numa=cpuset.format(each.id for each in node.numa if each.cpus & now),
        memory=_memory(),
        memory_near=cpuset.format(
            each.id for each in node.numa if each.cpus & now and each.memory != 0
        ),
        memory_allowed=sysfs.fields("/proc/self/status", ":").get("Mems_allowed_list", ""),
        omp_threads=max(omp_threads, _told_threads(environ)),
        launched=launched,
        given=cpuset.format(given),
        given_cores=count_cores(node, near or given),
        wider="" if given >= node.cpus_online else report.wider(there, environ, tasks),
        nearer=report.wider(there, environ, tasks, local) if local and given and not near else "",
        openmp=tuple(line.partition("=")[0] for line in report.openmp_hazards(environ)),
        oversubscribed=_is_oversubscribed(),
    )


def _told_threads(environ: Mapping[str, str]) -> int:
    """OMP_NUM_THREADS, of whose list the first is for the outermost loops; 0 where it is none."""
    first = environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if reading.is_number(first) else 0


def _is_oversubscribed() -> bool:
    """Whether a launcher of ours above this process was told so: ranks have its command line."""
    import psutil  # what says that a package is missing is imported before

    words: list[str] = []
    with suppress(psutil.Error, OSError):  # one of them may just have ended
        for each in psutil.Process().parents():
            words += each.cmdline()
    return "--oversubscribe" in words


def _is_launched(environ: Mapping[str, str]) -> bool:
    """Whether our launcher has started this worker: torchrun says True of its store."""
    counted = "TORCHELASTIC_RESTART_COUNT" in environ
    return counted and environ.get("TORCHELASTIC_USE_AGENT_STORE") == "False"


def _tasks(environ: Mapping[str, str]) -> int:
    """Of Slurm's step, on a node; `2(x3)` is of nodes that are alike."""
    tasks = environ.get("SLURM_STEP_TASKS_PER_NODE", "").partition("(")[0]
    return int(tasks) or 1 if reading.is_number(tasks) else 1


class _Mask:
    """A data set whose one sample is the mask of the process that reads it."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> list[int]:
        return sorted(mask())


def _loader_mask() -> frozenset[int]:
    from torch.utils.data import DataLoader

    loader: DataLoader[list[int]] = DataLoader(
        _Mask(),  # type: ignore[arg-type]  # it has what a map-style data set needs
        num_workers=1,
        batch_size=None,
    )
    return frozenset(int(cpu) for cpu in next(iter(loader)))


def _compute() -> int:
    """Start the threads that computations run in; the result is their number."""
    import torch

    torch.ones(512, 512) @ torch.ones(512, 512)
    return torch.get_num_threads()


def _thread_masks(main: frozenset[int]) -> tuple[str, ...]:
    """The main thread's mask and every other one that a thread of this process has."""
    masks = {cpuset.format(main): None}
    try:
        threads = os.listdir("/proc/self/task")
    except OSError:
        return tuple(masks)
    for thread in threads:
        # Not asked of the kernel by number: /proc may be that of another PID namespace.
        allowed = sysfs.fields(f"/proc/self/task/{thread}/status", ":").get("Cpus_allowed_list")
        if allowed:  # or it has just ended
            masks[cpuset.format(cpuset.parse(allowed))] = None
    return tuple(masks)


def memory_policy() -> MemoryPolicy | None:
    """The policy of this thread; None where it cannot be asked."""
    from array import array

    mode, words = array("i", [0]), array("Q", bytes(apply.MAX_NODES // 8))
    if apply.call(0, mode.buffer_info()[0], words.buffer_info()[0], apply.MAX_NODES, 0, 0):
        return None
    nodes = frozenset(
        i * apply.WORD + bit
        for i, word in enumerate(words)
        for bit in range(apply.WORD)
        if word >> bit & 1
    )
    known = mode[0] & 0xFF  # without the flags MPOL_F_STATIC_NODES and the like
    return MemoryPolicy(MODES[known] if known < len(MODES) else str(known), nodes)


def _memory() -> str:
    policy = memory_policy()
    if policy is None:
        return "unknown"
    return f"{policy.mode} {cpuset.format(policy.nodes)}".strip()

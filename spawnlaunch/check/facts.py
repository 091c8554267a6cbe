"""What this rank really has, looked at after torch has been at work."""

import os
from collections.abc import Mapping
from typing import NamedTuple

from spawnlaunch import cpuset
from spawnlaunch.binding import apply
from spawnlaunch.node import Node, sysfs
from spawnlaunch.node.visible import visible


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
    cpus_at_start: str  # the mask before torch was imported
    cpus: str  # the main thread's mask afterwards
    threads: tuple[str, ...]  # the different masks of all threads, the main thread's first
    loader_cpus: str  # the mask of a DataLoader worker
    cores: int  # physical cores in the main thread's mask
    cores_of_node: int  # physical cores of the machine that are online
    numa: str  # NUMA nodes of the mask
    memory: str  # memory policy: mode and nodes
    omp_threads: int  # what torch computes with


def mask() -> frozenset[int]:
    """The CPUs of this thread; empty where the system has no masks."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def look(
    node: Node, rank: int, local_rank: int, at_start: frozenset[int], environ: Mapping[str, str]
) -> Facts:
    """Put torch to work, then look at this process."""
    loader = _loader_mask()
    omp_threads = _compute()
    now = mask()
    device = visible(node, environ).device_of(local_rank)
    place = None if device is None else node.devices[device]
    local = place.local_cpus if place else None
    return Facts(
        rank=rank,
        local_rank=local_rank,
        host=os.uname().nodename,
        pid=os.getpid(),
        device=device,
        device_address=place.address if place else None,
        device_cpus=None if local is None else cpuset.format(local),
        device_numa=place.numa if place else None,
        cpus_at_start=cpuset.format(at_start),
        cpus=cpuset.format(now),
        threads=_thread_masks(now),
        loader_cpus=cpuset.format(loader),
        cores=sum(1 for core in node.cores if core & now),
        cores_of_node=len(node.cores),
        numa=cpuset.format(each.id for each in node.numa if each.cpus & now),
        memory=_memory(),
        omp_threads=omp_threads,
    )


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


def _memory() -> str:
    policy = apply.memory_policy()
    if policy is None:
        return "unknown"
    return f"{policy.mode} {cpuset.format(policy.nodes)}".strip()

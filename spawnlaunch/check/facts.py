"""The CPUs, memory and device of this rank after torch has worked.

The results are plain values, for JSON and for `rules`, which judge.
"""

import os
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch.utils.data import DataLoader

from spawnlaunch.base import cpuset, reading
from spawnlaunch.binding import apply, claims, placement, plan
from spawnlaunch.binding.cores import count_cores
from spawnlaunch.node import hardware, sysfs, visible
from spawnlaunch.workers import environment
from spawnlaunch.world import identity, managers


class Facts(NamedTuple):
    """The facts of one rank. CPU lists are strings as the kernel writes them."""

    rank: int
    local_rank: int
    host: str
    pid: int
    device: int | None  # number within the node's devices in address order
    device_address: str | None
    device_cpus: str | None  # CPUs next to the device; None where unknown
    device_numa: int | None
    visible_devices: int  # that the environment shows
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
    omp_threads: int  # the threads that torch computes with, or is told to, which torch may cut
    threads_by: tuple[str, ...]  # the variables that tell it to compute with more than the mask has
    launched: bool  # by this package's launcher
    divided_cpus: str  # the CPUs that its launcher divides; without one, the mask at the start
    by_default: str  # the CPUs that the launcher, without flags, gives this rank of them
    default_cores: int  # the physical cores in that
    best_cores: int  # those that it would give this rank if all CPUs were allowed
    wider: str  # how to start with more of them; "" where they are all
    nearer: str  # how to start with some next to the device; "" where some are
    isolated: str  # how to start on isolated CPUs; "" where these are too few
    openmp: tuple[str, ...]  # OpenMP's variables that move threads
    typed: tuple[str, ...]  # flags of its launcher: those of binding, and --oversubscribe


class Observation(NamedTuple):
    """The system's view of this process after torch has worked; each field as in Facts."""

    host: str
    pid: int
    cpus_at_start: str
    cpus: str
    threads: tuple[str, ...]
    loader_cpus: str
    memory: str
    memory_allowed: str
    omp_threads: int  # the threads that torch computes with


def mask() -> frozenset[int]:
    """The CPUs of this thread; empty where the system has no masks."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def look(at_start: frozenset[int]) -> Observation:
    """Put torch to work, then look at this process."""
    loader: DataLoader[list[int]] = DataLoader(
        _Mask(),  # type: ignore[arg-type]  # it has what a map-style data set needs
        num_workers=1,
        batch_size=None,
    )
    of_loader = frozenset(int(cpu) for cpu in next(iter(loader)))
    torch.ones(512, 512) @ torch.ones(512, 512)  # starts the threads that computations run in
    now, policy = mask(), apply.memory_policy()
    return Observation(
        host=os.uname().nodename,
        pid=os.getpid(),
        cpus_at_start=cpuset.format(at_start),
        cpus=cpuset.format(now),
        threads=_thread_masks(now),
        loader_cpus=cpuset.format(of_loader),
        memory=f"{policy.mode} {cpuset.format(policy.nodes)}".strip() if policy else "unknown",
        memory_allowed=sysfs.fields("/proc/self/status", ":").get("Mems_allowed_list", ""),
        omp_threads=torch.get_num_threads(),
    )


def derive(
    node: hardware.Node, rank: int, local_rank: int, its: Observation, environ: Mapping[str, str]
) -> Facts:
    """The facts of a rank: the properties of its process, and what it could have on this node."""
    now = parsed(its.cpus)
    shown = visible.visible(node, environ)
    device = shown.device_of(local_rank)
    place = None if device is None else node.devices[device]
    local = place.local_cpus if place else None
    launched = _is_launched(environ)
    divided = environ.get(cpuset.NODE_CPUS) if launched else None
    to_divide = parsed(its.cpus_at_start if divided is None else divided)
    there = node._replace(cpus_allowed=to_divide)
    near = local & there.cpus_to_share if local else to_divide
    places = [each.local_cpus for each in node.devices if each.local_cpus]
    by_default = _by_default(there, shown, local_rank, environ)
    thread_variables = placement.threads_by_variable(environ)
    usual = node.cpus_online - node.isolated or node.cpus_online
    isolated = placement.isolated_near(node, places)
    suffices = count_cores(node, isolated) >= _size(local_rank, environ)
    whole = node._replace(cpus_allowed=node.cpus_online)
    observed = its._replace(omp_threads=max(its.omp_threads, *thread_variables.values(), 0))
    return Facts(
        **observed._asdict(),
        rank=rank,
        local_rank=local_rank,
        device=device,
        device_address=place.address if place else None,
        device_cpus=None if local is None else cpuset.format(local),
        device_numa=place.numa if place else None,
        visible_devices=len(shown.devices),
        cores=count_cores(node, now),
        cores_of_node=count_cores(node, usual),
        numa=cpuset.format(each.id for each in node.numa if each.cpus & now),
        memory_near=cpuset.format(
            each.id for each in node.numa if each.cpus & now and each.memory != 0
        ),
        threads_by=tuple(name for name, number in thread_variables.items() if number > len(now)),
        launched=launched,
        divided_cpus=cpuset.format(to_divide),
        by_default=cpuset.format(by_default),
        default_cores=count_cores(node, by_default),
        best_cores=count_cores(node, _by_default(whole, shown, local_rank, environ)),
        wider="" if to_divide >= usual else placement.wider(there, environ),
        nearer=placement.nearer(there, environ, local, places) if local and not near else "",
        isolated=f"with taskset -c {cpuset.format(isolated)}" if suffices else "",
        openmp=tuple(line.partition("=")[0] for line in placement.openmp_hazards(environ)),
        typed=tuple(environ.get(environment.TYPED, "").split()) if launched else (),
    )


def parsed(cpus: str) -> cpuset.CpuSet:
    """The CPUs of a list as Facts have it."""
    return cpuset.parse(cpus) if cpus else cpuset.EMPTY


def _by_default(
    there: hardware.Node, shown: visible.Visible, local_rank: int, environ: Mapping[str, str]
) -> cpuset.CpuSet:
    """The CPUs that the launcher gives this rank without any flag."""
    size = _size(local_rank, environ)
    task = claims.TaskView(local_rank) if len(shown.devices) == 1 < size else None
    if _is_launched(environ) and environment.MARK not in environ:
        world = identity.World(
            mode=identity.TASK, rank=local_rank, world_size=size, local_rank=local_rank,
            local_world_size=size, node_rank=None, nnodes=None, master_addr="", master_port=0,
            run_id="",
        )  # fmt: skip
        mentioned = tuple(managers.mentioned(environ))
        resolution = identity.Resolution(world, {}, (), (), environ, mentioned=mentioned)
        task = plan.view_of_task(there, resolution)
    bindings = plan.plan(there, shown, size, task=task).bindings
    return bindings[0 if task else local_rank].cpus


def _size(local_rank: int, environ: Mapping[str, str]) -> int:
    """The number of ranks on this node."""
    text = environ.get("LOCAL_WORLD_SIZE", "")
    if not reading.is_number(text):  # Slurm's step: `2(x3)` is three nodes with two tasks each
        text = environ.get("SLURM_STEP_TASKS_PER_NODE", "").partition("(")[0]
    return max(int(text) if reading.is_number(text) else 1, local_rank + 1)


def _is_launched(environ: Mapping[str, str]) -> bool:
    """Whether our launcher has started this worker: torchrun sets True for its store."""
    counted = "TORCHELASTIC_RESTART_COUNT" in environ
    return counted and environ.get("TORCHELASTIC_USE_AGENT_STORE") == "False"


class _Mask:
    """A data set with one sample: the mask of the process that reads it."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> list[int]:
        return sorted(mask())


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

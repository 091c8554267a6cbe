"""Let all ranks agree, before any measurement, on the arms, the bindings and the workloads.

Each rank reads its node and sends the others its view of it. Ranks with the same view plan
together, as under one launcher.
"""

import platform
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy
import torch

from spawnlaunch import __version__
from spawnlaunch.base import cpuset, errors
from spawnlaunch.bench import (
    arms,
    bench_request,
    command_line,
    forked_sample,
    rank_group,
    rank_on_node,
    results,
    workloads,
)
from spawnlaunch.bench.rank_on_node import Part, RankOnNode, RankView
from spawnlaunch.binding import apply, plan
from spawnlaunch.cli import parsing
from spawnlaunch.workers import environment
from spawnlaunch.world import identity, managers


class Agreed(NamedTuple):
    """The arms, bindings and device on which all ranks have agreed."""

    names: tuple[str, ...]  # the arms that are measured
    parts: Mapping[str, Part]  # of this rank, by arm; without the arms in which it takes no part
    device: int | None  # of this rank, for PyTorch; None: the workloads run on the CPU
    result: results.Result  # with nothing measured yet


def agree(
    options: bench_request.BenchRequest, here: RankOnNode, group: rank_group.RankGroup
) -> Agreed:
    """Agree on the arms that differ on some node, and on the workloads. Raises UsageError."""
    everyone = group.exchange(here.view)
    peers = [view for view in everyone if view.host == here.view.host]
    refusal, planned = "", {}
    try:
        _refuse(options, here, peers)
        planned = _plan_arms(options, here, peers)
    except errors.UsageError as error:
        refusal = str(error)
    if refusals := [each for each in group.exchange(refusal) if each]:
        raise errors.UsageError(refusals[0])
    requests = {arm.name: arm for arm in options.arms}
    mine = {
        name: next((b for b in each.bindings if b.local_rank == here.view.local_rank), None)
        for name, each in planned.items()
    }
    effects = group.exchange(
        {
            name: (planned[name].missing or None)
            if (binding := mine[name]) is None
            else arms.effect(here.node, binding, here.view.allowed, arm)
            for name, arm in requests.items()
        }
    )
    # Of arms with the same effect here, the one that others are compared with stays.
    order = sorted(requests, key=lambda name: name != options.against)
    omitted = arms.omitted({name: [each[name] for each in effects] for name in order})
    if options.against in omitted:
        why = omitted[options.against]
        raise errors.UsageError(f"--against {options.against}: {why}; choose another arm")
    names = tuple(name for name in requests if name not in omitted)
    hosts = list(dict.fromkeys(view.host for view in everyone))
    parts = {
        name: _part(here, requests[name], binding, hosts)
        for name in names
        if (binding := mine[name]) is not None
    }
    typed = {name: requests[name].typed(planned[name].bindings) for name in names}
    records = group.exchange(
        {name: rank_on_node.bound_rank(here, part) for name, part in parts.items()}
    )
    bound = {name: tuple(each[name] for each in records if name in each) for name in names}
    nodes = group.gather(rank_on_node.node_facts(here))
    device = None
    if options.workloads:
        widest = max(parts.values(), key=lambda part: part.size).binding
        device = _device(here, peers, group, widest)
    not_run = _not_run(options, here.size, device is not None)
    result = results.Result(
        about=_about_run(options, device, not_run),
        nodes=[each for each in nodes if each is not None],
        against=options.against,
        arms=[results.Arm(n, typed[n], bound[n], requests[n].beside) for n in names],
        omitted=omitted,
        not_run=not_run,
        measured=[],
    )
    return Agreed(names, parts, device, result)


def _refuse(
    options: bench_request.BenchRequest, here: RankOnNode, peers: Sequence[RankView]
) -> None:
    """Refuse what the ranks that were started cannot do. Raises UsageError."""
    if options.launcher and here.size > 1:
        raise errors.UsageError(
            f"--launcher starts the workers itself, on one node, and here are {here.size} ranks; "
            "use spawnlaunch bench in a shell of one node"
        )
    if (most := max(options.counts, default=0)) > here.local_size:
        raise errors.UsageError(
            f"--nproc compares up to {most} workers, and {here.local_size} have been started "
            f"on this node; start {most}"
        )
    if here.view.rank == 0:  # which writes the files, on its node
        for path in filter(None, (options.json, options.plot)):
            results.check_writable(path, is_read=path == options.json)
    if cpuset.NODE_CPUS in here.environ and len({view.allowed for view in peers}) > 1:
        raise errors.UsageError(
            "the launcher has pinned the ranks before the bench could; use spawnlaunch --bind "
            "none -m spawnlaunch.bench, or leave the launcher out"
        )


def _plan_arms(
    options: bench_request.BenchRequest, here: RankOnNode, peers: Sequence[RankView]
) -> dict[str, arms.Planned]:
    """Plan the bindings of this node's ranks under each arm, by local rank.

    Where ranks see different CPUs or devices, as tasks that a resource manager has bound do, each
    plans for itself, as such a task would: then the bindings are of this rank alone, and an arm
    that needs them all is missing. Raises UsageError.
    """
    are_alike = len({(view.allowed, view.devices) for view in peers}) == 1

    def plan_of(arm: arms.ArmRequest) -> tuple[apply.Binding, ...]:
        bindings = _plan(here, arm, identity.LOCAL if are_alike else identity.TASK)
        return tuple(b._replace(threads=options.omp_threads or b.threads) for b in bindings)

    if are_alike:
        return arms.on_node(here.node, options.arms, plan_of)
    is_bound = len({view.allowed for view in peers}) > 1
    note = note_on_bound_ranks if is_bound else note_on_hidden_devices
    plannable = [arm for arm in options.arms if arm.name != arms.FAR and arm.local_size is None]
    planned = arms.on_node(here.node, plannable, plan_of)
    return {
        arm.name: planned.get(arm.name, arms.Planned((), note(here.environ)))
        for arm in options.arms
    }


def _plan(here: RankOnNode, arm: arms.ArmRequest, mode: str) -> tuple[apply.Binding, ...]:
    """Plan the bindings as the launcher does in this mode. Raises UsageError."""
    request = parsing.parse([*arm.flags, "-m", "a.worker"], {}, sys.executable)
    is_task = mode == identity.TASK
    rank, local_rank = (here.view.rank, here.view.local_rank) if is_task else (0, 0)
    local_size = min(arm.local_size or here.local_size, here.local_size)
    world = identity.World(
        mode=mode, rank=rank, world_size=here.size,
        local_rank=local_rank, local_world_size=local_size, node_rank=None, nnodes=None,
        master_addr="", master_port=0, run_id="",
    )  # fmt: skip
    detected = tuple(managers.detect(here.environ))
    resolution = identity.Resolution(world, {}, (), detected, here.environ)
    return plan.bind_ranks(request, here.node, here.visible_devices, resolution).bindings


def note_on_bound_ranks(environ: Mapping[str, str]) -> str:
    """A note that each rank has CPUs of its own, and how to let the bench divide them all."""
    remark = "the ranks were given CPUs of their own, which are respected"
    if environ.get("SLURM_CPU_BIND_TYPE", "none") != "none":
        return f"{remark}; start with srun --cpu-bind=none to have them all to divide"
    return f"{remark}; start them without what binds each (taskset, or --bind-to of mpirun)"


def note_on_hidden_devices(environ: Mapping[str, str]) -> str:
    """A note that each rank sees other devices, and how to show all of them to each rank."""
    remark = "each rank sees other devices"
    if environment.MARK in environ:
        return f"{remark}; leave --virtual-local-rank out, and what sets their lists of devices"
    if "SLURM_JOB_ID" in environ:
        return (
            f"{remark}; start one launcher per node, which sees them all: srun "
            "--ntasks=$SLURM_NNODES --ntasks-per-node=1 --gpus-per-node=N ... --nproc N"
        )
    return f"{remark}; start one launcher per node, which sees them all"


def _part(
    here: RankOnNode, arm: arms.ArmRequest, binding: apply.Binding, hosts: Sequence[str]
) -> Part:
    """Return this rank's part in an arm, with new rank numbers if a node does not use all ranks."""
    rank, size, local_size = here.view.rank, here.size, here.local_size
    if arm.local_size is not None:
        local_size = arm.local_size
        size = local_size * len(hosts)
        rank = hosts.index(here.view.host) * local_size + here.view.local_rank
    its = arms.effect(here.node, binding, here.view.allowed, arm)
    return Part(arm, binding, rank, size, local_size, its.loader_workers)


def _device(
    here: RankOnNode,
    peers: Sequence[RankView],
    group: rank_group.RankGroup,
    binding: apply.Binding,
) -> int | None:
    """The number of this rank's device; None, for all ranks, where one has none of its own."""
    is_exclusive = [view.devices for view in peers].count(here.view.devices) == 1
    answer = forked_sample.of_workload(
        binding, lambda _: {"device": _device_index(here, is_exclusive)}, group.has_failed
    )
    answers = group.exchange(answer)
    for each in answers:
        if each.error:
            raise forked_sample.FailedError(each.error)
    devices = [each.values["device"] for each in answers]
    return None if None in devices else answer.values["device"]


def _device_index(here: RankOnNode, is_exclusive: bool) -> int | None:
    """The number of this rank's own CUDA or ROCm device; None where it has none of its own.

    `is_exclusive`: no other rank sees the devices that this one sees. Call it in the process of a
    sample: no fork may follow the start of a driver.
    """
    devices = torch.cuda.device_count()
    if devices and is_exclusive:
        return here.view.local_rank % devices
    return here.view.local_rank if devices >= here.local_size else None


def _not_run(options: bench_request.BenchRequest, ranks: int, has_devices: bool) -> dict[str, str]:
    """The bundled workloads that cannot run, and why; the same on all ranks."""
    fewest = min(options.counts, default=ranks)
    reasons = {name: workloads.missing(name, fewest, has_devices) for name in options.workloads}
    return {name: why for name, why in reasons.items() if why}


def _about_run(
    options: bench_request.BenchRequest, device: int | None, not_run: Mapping[str, str]
) -> dict[str, Any]:
    """Facts on the run: date, versions, flags and workloads; `device` is this rank's number."""
    measured = [
        workloads.on(workloads.NAMES[name], device is not None)
        for name in options.workloads
        if name not in not_run
    ]
    kind = "CPU" if device is None else "CUDA or ROCm"
    if options.command:
        is_rate = options.metric is not None and not options.lower_is_better
        about, unit = " ".join(options.command), options.metric or "s"
        is_launched = bool(options.launcher)
        measured = [workloads.Workload(workloads.COMMAND, unit, is_rate, about, is_launched)]
        kind = ""  # which the command decides itself
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": f"{command_line.NAME} {shlex.join(sys.argv[1:])}".strip(),
        "versions": {
            "spawnlaunch": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
        },
        "rounds": options.rounds,
        "budget_s": options.budget_s,
        "warm_up": options.warm_up,
        "seconds": options.seconds,
        "device": kind,
        "counts": list(options.counts),
        "launchers": list(options.launcher),
        "workers": options.nproc if options.launcher else None,
        "workloads": [each._asdict() for each in measured],
    }

"""What all ranks agree on before anything is measured: the arms, the bindings, what can be run.

Each rank reads its node and tells the others what it sees of it; ranks that see the same plan
together, as under one launcher. What the result says of nodes and ranks is written down here too.
"""

import os
import platform
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch

from spawnlaunch import __version__, cpuset
from spawnlaunch import node as nodes
from spawnlaunch.bench import arms, sample, workloads
from spawnlaunch.bench.arms import Planned
from spawnlaunch.bench.flags import PROG, BenchRequest
from spawnlaunch.bench.rank_group import RankGroup
from spawnlaunch.bench.result import Arm, BoundRank, Result, check_writable
from spawnlaunch.bench.sample import FailedError, Sample
from spawnlaunch.binding.apply import Binding
from spawnlaunch.binding.picture import picture
from spawnlaunch.binding.plan import bind_ranks
from spawnlaunch.binding.report import device_name
from spawnlaunch.cpuset import CpuSet
from spawnlaunch.errors import UsageError
from spawnlaunch.node import Node
from spawnlaunch.node.visible import Visible, visible
from spawnlaunch.request import Program, Request
from spawnlaunch.run.environment import MARK
from spawnlaunch.values import Policy
from spawnlaunch.world.model import World

OWN_DEVICES = (
    "each rank sees other devices; start one launcher per node, which sees them all: srun "
    "--ntasks=$SLURM_NNODES --ntasks-per-node=1 --gpus-per-node=N ... --nproc N"
)
OWN_CPUS = (
    "the ranks were given CPUs of their own, which are respected; start with srun "
    "--cpu-bind=none to have them all to divide"
)


class RankView(NamedTuple):
    """What a rank sees of its node, told to the others."""

    host: str
    rank: int
    local_rank: int
    allowed: CpuSet
    devices: tuple[int | None, ...]


class RankOnNode(NamedTuple):
    """A rank on its node."""

    view: RankView
    size: int
    local_size: int
    node: Node
    seen: Visible
    environ: Mapping[str, str]


def look(environ: Mapping[str, str]) -> RankOnNode:
    """This rank, by its launcher's variables and this machine's files."""
    node = nodes.read()
    seen = visible(node, environ)
    rank, size, local_rank = (int(environ[n]) for n in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    view = RankView(os.uname().nodename, rank, local_rank, node.cpus_allowed, seen.devices)
    return RankOnNode(view, size, int(environ["LOCAL_WORLD_SIZE"]), node, seen, environ)


def plan_arms(
    here: RankOnNode, everyone: Sequence[RankView], names: Sequence[str], threads: int | None
) -> dict[str, Planned]:
    """The bindings of this node's ranks under each arm, by local rank.

    Where ranks see different CPUs or devices, as tasks that a resource manager has bound do, each
    plans for itself, as such a task would: then the bindings are of this rank alone. `threads` is
    what all of them compute with, if the user has said so. Raises UsageError.
    """
    alike = _is_alike(here, everyone)
    _refuse_pinned(here, everyone)

    def planned(name: str) -> tuple[Binding, ...]:
        bindings = _plan(here, name, "local" if alike else "task")
        return tuple(b._replace(threads=threads or b.threads) for b in bindings)

    if alike:
        return arms.on_node(here.node, here.node.cpus_allowed, names, planned)
    masks = {view.allowed for view in _peers(here, everyone)}
    why = OWN_CPUS if len(masks) > 1 else OWN_DEVICES
    return {
        name: Planned(planned(arms.POLICIES[name])) if name in arms.POLICIES else Planned((), why)
        for name in names
    }


def _peers(here: RankOnNode, everyone: Sequence[RankView]) -> list[RankView]:
    return [view for view in everyone if view.host == here.view.host]


def _is_alike(here: RankOnNode, everyone: Sequence[RankView]) -> bool:
    """Whether all ranks of this node see the same of it."""
    return len({(view.allowed, view.devices) for view in _peers(here, everyone)}) == 1


def _refuse_pinned(here: RankOnNode, everyone: Sequence[RankView]) -> None:
    if MARK in here.environ and len({view.allowed for view in _peers(here, everyone)}) > 1:
        raise UsageError(
            "the launcher has pinned the ranks before the bench could; type python -m spawnlaunch "
            "--bind none -m spawnlaunch.bench, or leave the launcher out"
        )


def _plan(here: RankOnNode, policy: str, mode: str) -> tuple[Binding, ...]:
    """As the launcher plans in this mode."""
    request = Request(Program("bundled", "", ()), sys.executable, bind=Policy(policy))
    rank, local_rank = (here.view.rank, here.view.local_rank) if mode == "task" else (0, 0)
    world = World(
        mode=mode,
        rank=rank,
        world_size=here.size,
        local_rank=local_rank,
        local_world_size=here.local_size,
        node_rank=None,
        nnodes=None,
        master_addr="",
        master_port=0,
        run_id="",
    )
    return bind_ranks(request, here.node, here.seen, world, here.environ).bindings


class Agreed(NamedTuple):
    """What all ranks have agreed on."""

    names: tuple[str, ...]  # the arms that are measured
    bindings: Mapping[str, Binding]  # of this rank, by arm
    device: int | None  # of this rank, for PyTorch; None: the workloads run on the CPU
    result: Result  # with nothing measured yet


def agree(options: BenchRequest, here: RankOnNode, group: RankGroup) -> Agreed:
    """The arms that make a difference on some node, and what can be run. Raises UsageError."""
    everyone = group.exchange(here.view)
    refusal, planned = "", {}
    try:
        if group.rank == 0:  # which writes the files, on its node
            for path in filter(None, (options.json, options.plot)):
                check_writable(path)
        planned = plan_arms(here, everyone, options.arms, options.omp_threads)
    except UsageError as error:
        refusal = str(error)
    _refuse_together(group, refusal)
    mine = {name: _own(here, each) for name, each in planned.items()}
    effects = group.exchange(
        {name: _effect(here, planned[name], binding) for name, binding in mine.items()}
    )
    left_out = arms.left_out({name: [each[name] for each in effects] for name in options.arms})
    if options.against in left_out:
        why = left_out[options.against]
        raise UsageError(f"--against {options.against}: {why}; choose another arm")
    names = tuple(name for name in options.arms if name not in left_out)
    bindings = {name: each for name in names if (each := mine[name]) is not None}
    flags = {name: arms.flag(name, planned[name].bindings) for name in names}
    records = group.exchange({name: _bound_rank(here, bindings[name]) for name in names})
    drawn = group.gather(_node_facts(here, records, bindings))
    any_binding = bindings[names[0]]
    device = _device(here, everyone, group, any_binding) if options.workloads else None
    result = Result(
        about=_about_run(options, device),
        nodes=[each for each in drawn if each is not None],
        against=options.against,
        arms=[Arm(name, flags[name], tuple(each[name] for each in records)) for name in names],
        left_out=left_out,
        not_run=_not_run(options, here.size, device is not None),
        measured=[],
    )
    return Agreed(names, bindings, device, result)


def _refuse_together(group: RankGroup, refusal: str) -> None:
    refusals = [each for each in group.exchange(refusal) if each]
    if refusals:
        raise UsageError(refusals[0])


def _own(here: RankOnNode, planned: Planned) -> Binding | None:
    """This rank's binding; those planned are of all local ranks, or of this one alone."""
    found = [each for each in planned.bindings if each.local_rank == here.view.local_rank]
    return found[0] if found else None


def _effect(here: RankOnNode, planned: Planned, binding: Binding | None) -> arms.Effect | str:
    if binding is None:
        return planned.missing
    return arms.effect(here.node, binding, here.view.allowed)


def _device(
    here: RankOnNode, everyone: Sequence[RankView], group: RankGroup, binding: Binding
) -> int | None:
    """The number of this rank's device; None, for all ranks, where one has none of its own."""
    is_own = [view.devices for view in _peers(here, everyone)].count(here.view.devices) == 1
    asked = sample.of_workload(
        binding, lambda: {"device": _device_index(here, is_own)}, group.has_failed
    )
    answers = group.exchange(asked)
    for each in answers:
        if each.error:
            raise FailedError(each.error)
    return asked.values["device"] if all(_has(each) for each in answers) else None


def _has(asked: Sample) -> bool:
    return asked.values["device"] is not None


def _device_index(here: RankOnNode, is_own: bool) -> int | None:
    """The number of this rank's own CUDA or ROCm device; None where it has none of its own.

    `is_own` says that no other rank sees the devices that this one sees. To be asked in the process
    of a sample: no fork may follow the start of a driver.
    """
    devices = torch.cuda.device_count()
    if devices and is_own:
        return here.view.local_rank % devices
    return here.view.local_rank if devices >= here.local_size else None


def _not_run(options: BenchRequest, ranks: int, has_devices: bool) -> dict[str, str]:
    """The bundled workloads that cannot run, and why; the same on all ranks."""
    reasons = {name: workloads.missing(name, ranks, has_devices) for name in options.workloads}
    return {name: why for name, why in reasons.items() if why}


def _about_run(options: BenchRequest, device: int | None) -> dict[str, Any]:
    """The run: when, with what, how, and on what; `device` is the number of this rank's."""
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": f"{PROG} {shlex.join(sys.argv[1:])}".strip(),
        "versions": {
            "spawnlaunch": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
        },
        "seed": options.seed,
        "rounds": options.rounds,
        "budget_s": options.budget_s,
        "warm_up": options.warm_up,
        "seconds": options.seconds,
        "device": _kind(options, device),
    }


def _kind(options: BenchRequest, device: int | None) -> str:
    """What the bundled workloads compute on; "" where a command does what it likes."""
    if options.command:
        return ""
    return "CPU" if device is None else "CUDA or ROCm"


def _bound_rank(here: RankOnNode, binding: Binding) -> BoundRank:
    """This rank and its binding as they are kept."""
    return BoundRank(
        here.view.rank,
        here.view.host,
        binding.local_rank,
        device_name(here.node, binding.device),
        cpuset.format(binding.cpus),
        cpuset.format(binding.memory_nodes),
        binding.threads,
        binding.locality,
    )


def _node_facts(
    here: RankOnNode, records: Sequence[Mapping[str, BoundRank]], mine: Mapping[str, Binding]
) -> dict[str, Any] | None:
    """This node, from its first rank; None from the others. `records` are all ranks' bindings."""
    if here.view.local_rank != 0:
        return None
    ranks = [each for each in records if next(iter(each.values())).host == here.view.host]
    pictures = {
        name: picture(
            here.node,
            [_binding(each[name], own) for each in ranks],
            here.node.cpus_allowed.union(*(cpuset.parse(each[name].cpus) for each in ranks)),
        )
        for name, own in mine.items()
    }
    return {
        "host": here.view.host,
        "kernel": platform.release(),
        "processor": _processor(),
        "cpus": cpuset.format(here.node.cpus_online),
        "allowed": cpuset.format(here.node.cpus_allowed),
        "cores": len(here.node.cores),
        "l3": [cpuset.format(group) for group in here.node.l3],
        "numa": {str(each.id): cpuset.format(each.cpus) for each in here.node.numa},
        "devices": [device_name(here.node, device.number) for device in here.node.devices],
        "load": os.getloadavg()[0],
        "pictures": pictures,
    }


def _binding(rank: BoundRank, like: Binding) -> Binding:
    """Enough of a neighbour's binding to draw it."""
    return like._replace(local_rank=rank.local_rank, cpus=cpuset.parse(rank.cpus))


def _processor() -> str:
    """The model name of proc(5), cpuinfo; where there is none, what uname says."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()

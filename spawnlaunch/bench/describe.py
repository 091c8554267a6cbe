"""What a result says of the run, its nodes and its ranks."""

import os
import platform
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch

from spawnlaunch import __version__, cpuset
from spawnlaunch.bench import arms, workloads
from spawnlaunch.bench.command_line import PROG
from spawnlaunch.bench.flags import BenchRequest
from spawnlaunch.bench.here import Part, RankOnNode
from spawnlaunch.bench.result import BoundRank
from spawnlaunch.bench.workloads import COMMAND, Workload
from spawnlaunch.binding.apply import Binding
from spawnlaunch.binding.picture import picture
from spawnlaunch.binding.report import device_name


def about_run(
    options: BenchRequest, device: int | None, not_run: Mapping[str, str]
) -> dict[str, Any]:
    """The run: when, with what, how, and on what; `device` is the number of this rank's."""
    will_run = [each for each in workloads_of(options) if each.name not in not_run]
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
        "argv": list(options.argv),
        "counts": list(options.counts),
        "workloads": [each._asdict() for each in will_run],
    }


def workloads_of(options: BenchRequest) -> list[Workload]:
    """What is to be run, if it can be."""
    if not options.command:
        return [workloads.NAMES[name] for name in options.workloads]
    about = " ".join(options.command)
    if options.metric is None:
        return [Workload(COMMAND, "s", False, about)]
    return [Workload(COMMAND, options.metric, not options.lower_is_better, about)]


def _kind(options: BenchRequest, device: int | None) -> str:
    """What the bundled workloads compute on; "" where a command does what it likes."""
    if options.command:
        return ""
    return "CPU" if device is None else "CUDA or ROCm"


def bound_rank(here: RankOnNode, part: Part) -> BoundRank:
    """This rank and its binding as they are kept."""
    binding = part.binding
    return BoundRank(
        part.rank,
        here.view.host,
        binding.local_rank,
        device_name(here.node, binding.device),
        cpuset.format(binding.cpus),
        cpuset.format(binding.memory_nodes),
        binding.threads,
        binding.locality,
    )


def node_facts(
    here: RankOnNode, records: Sequence[Mapping[str, BoundRank]], mine: Mapping[str, Binding]
) -> dict[str, Any] | None:
    """This node, from its first rank; None from the others. `records` are all ranks' bindings."""
    if here.view.local_rank != 0:
        return None
    pictures = {}
    for name, own in mine.items():
        each = [its[name] for its in records if name in its and its[name].host == here.view.host]
        cpus = here.node.cpus_allowed.union(*(cpuset.parse(rank.cpus) for rank in each))
        pictures[name] = picture(here.node, [_binding(rank, own) for rank in each], cpus)
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
        "nics": {
            device_name(here.node, device.number): arms.nearest_nic(here.node, device.number)
            for device in here.node.devices
        },
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

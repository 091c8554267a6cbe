"""Describe the run, its nodes and its ranks for a result."""

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

from spawnlaunch import __version__
from spawnlaunch.base import cpuset
from spawnlaunch.bench import arms, bench_request, command_line, results, workloads
from spawnlaunch.bench.here import Part, RankOnNode
from spawnlaunch.binding import apply, picture, placement

AS_TYPED = ("seed", "rounds", "budget_s", "warm_up", "seconds")


def about_run(
    options: bench_request.BenchRequest, device: int | None, not_run: Mapping[str, str]
) -> dict[str, Any]:
    """Facts on the run: date, versions, flags and workloads; `device` is this rank's number."""
    every = (workloads.on(each, device is not None) for each in workloads_of(options))
    will_run = [each for each in every if each.name not in not_run]
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": f"{command_line.PROG} {shlex.join(sys.argv[1:])}".strip(),
        "versions": {
            "spawnlaunch": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
        },
        **{name: getattr(options, name) for name in AS_TYPED},
        "device": _kind(options, device),
        "counts": list(options.counts),
        "launchers": list(options.launcher),
        "workers": options.nproc if options.launcher else None,
        "workloads": [each._asdict() for each in will_run],
    }


def workloads_of(options: bench_request.BenchRequest) -> list[workloads.Workload]:
    """The workloads that the options request, whether or not they can run here."""
    if not options.command:
        return [workloads.NAMES[name] for name in options.workloads]
    about = " ".join(options.command)
    unit = "s" if options.metric is None else options.metric
    is_rate = options.metric is not None and not options.lower_is_better
    return [workloads.Workload(workloads.COMMAND, unit, is_rate, about, bool(options.launcher))]


def _kind(options: bench_request.BenchRequest, device: int | None) -> str:
    """The kind of device that the bundled workloads use; "" for a command, which decides itself."""
    if options.command:
        return ""
    return "CPU" if device is None else "CUDA or ROCm"


def bound_rank(here: RankOnNode, part: Part) -> results.BoundRank:
    """The record of this rank and its binding for the result."""
    binding = part.binding
    return results.BoundRank(
        part.rank,
        here.view.host,
        binding.local_rank,
        placement.device_name(here.node, binding.device),
        cpuset.format(binding.cpus),
        cpuset.format(binding.memory_nodes),
        0 if part.request.launcher else binding.threads,
        binding.locality,
    )


def node_facts(
    here: RankOnNode,
    records: Sequence[Mapping[str, results.BoundRank]],
    mine: Mapping[str, apply.Binding],
) -> dict[str, Any] | None:
    """Facts on this node from its first rank, else None; `records` are all ranks' bindings."""
    if here.view.local_rank != 0:
        return None
    pictures = {}
    for name, own in mine.items():
        each = [its[name] for its in records if name in its and its[name].host == here.view.host]
        its = [  # enough of a neighbour's binding to draw it
            own._replace(local_rank=rank.local_rank, cpus=cpuset.parse(rank.cpus)) for rank in each
        ]
        cpus = here.node.cpus_allowed.union(*(cpuset.parse(rank.cpus) for rank in each))
        pictures[name] = picture.picture(here.node, its, cpus)
    return {
        "host": here.view.host,
        "kernel": platform.release(),
        "processor": _processor(),
        "cpus": cpuset.format(here.node.cpus_online),
        "allowed": cpuset.format(here.node.cpus_allowed),
        "cores": len(here.node.cores),
        "l3": [cpuset.format(group) for group in here.node.l3],
        "numa": {str(each.id): cpuset.format(each.cpus) for each in here.node.numa},
        "devices": [
            placement.device_name(here.node, device.number) for device in here.node.devices
        ],
        "nics": {
            placement.device_name(here.node, device.number): arms.nearest_nic(
                here.node, device.number
            )
            for device in here.node.devices
        },
        "load": os.getloadavg()[0],
        "pictures": pictures,
    }


def _processor() -> str:
    """The model name in /proc/cpuinfo (proc(5)); without one, uname's machine."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()

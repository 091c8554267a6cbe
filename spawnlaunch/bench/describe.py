"""What a result says of the ranks, the nodes and the run, besides what was measured."""

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
from spawnlaunch.bench.options import PROG, Options
from spawnlaunch.bench.place import Place
from spawnlaunch.bench.result import Seat
from spawnlaunch.binding.picture import picture
from spawnlaunch.binding.plan import Binding
from spawnlaunch.binding.report import device_name


def about(options: Options, device: int | None) -> dict[str, Any]:
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
        "warm_up": options.warm_up,
        "seconds": options.seconds,
        "device": _kind(options, device),
    }


def _kind(options: Options, device: int | None) -> str:
    """What the bundled workloads compute on; "" where a command does what it likes."""
    if options.command:
        return ""
    return "CPU" if device is None else "CUDA or ROCm"


def seat(here: Place, binding: Binding) -> Seat:
    """A seat as it is kept."""
    return Seat(
        here.view.rank,
        here.view.host,
        binding.local_rank,
        device_name(here.node, binding.device),
        cpuset.format(binding.cpus),
        cpuset.format(binding.memory_nodes),
        binding.threads,
        binding.locality,
    )


def node(
    here: Place, records: Sequence[Mapping[str, Seat]], mine: Mapping[str, Binding]
) -> dict[str, Any] | None:
    """This node, from its first rank; None from the others. `records` are all ranks' seats."""
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


def _binding(seat: Seat, like: Binding) -> Binding:
    """Enough of a neighbour's binding to draw it."""
    return like._replace(local_rank=seat.local_rank, cpus=cpuset.parse(seat.cpus))


def _processor() -> str:
    """The model name of proc(5), cpuinfo; where there is none, what uname says."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()

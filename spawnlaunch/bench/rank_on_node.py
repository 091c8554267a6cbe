"""A rank on its node, its part in an arm, and the records of both for the result."""

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from spawnlaunch import node as nodes
from spawnlaunch.base import cpuset
from spawnlaunch.bench import arms, results
from spawnlaunch.binding import apply, placement
from spawnlaunch.node import hardware, visible


class RankView(NamedTuple):
    """The view of a rank on its node, as it is sent to the other ranks."""

    host: str
    rank: int
    local_rank: int
    allowed: cpuset.CpuSet
    devices: tuple[int | None, ...]


class RankOnNode(NamedTuple):
    """A rank, its node, and the environment from its launcher."""

    view: RankView
    size: int
    local_size: int
    node: hardware.Node
    visible_devices: visible.Visible
    environ: Mapping[str, str]


class Part(NamedTuple):
    """The part of this rank in an arm."""

    request: arms.ArmRequest
    binding: apply.Binding
    rank: int  # among those that take part
    size: int
    local_size: int
    loader_workers: int


def look(environ: Mapping[str, str]) -> RankOnNode:
    """Read this rank's launcher variables, and this machine's files."""
    node = nodes.read()
    shown = visible.visible(node, environ)
    rank, size, local_rank = (int(environ[n]) for n in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    view = RankView(os.uname().nodename, rank, local_rank, node.cpus_allowed, shown.devices)
    return RankOnNode(view, size, int(environ["LOCAL_WORLD_SIZE"]), node, shown, environ)


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


def node_facts(here: RankOnNode) -> dict[str, Any] | None:
    """The record of this node for the result, from its first rank; else None."""
    if here.view.local_rank != 0:
        return None
    return {
        "host": here.view.host,
        "kernel": platform.release(),
        "processor": _processor(),
        "allowed": cpuset.format(here.node.cpus_allowed),
        "cores": len(here.node.cores),
        "devices": [placement.device_name(here.node, each.number) for each in here.node.devices],
        "load": os.getloadavg()[0],
    }


def _processor() -> str:
    """The model name in /proc/cpuinfo (proc(5)); without one, uname's machine."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()

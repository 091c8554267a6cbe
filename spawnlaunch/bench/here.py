"""A rank on its node, and its part in an arm."""

import os
from collections.abc import Mapping
from typing import NamedTuple

from spawnlaunch import node as nodes
from spawnlaunch.base import cpuset
from spawnlaunch.bench import arms
from spawnlaunch.binding import apply
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
    seen: visible.Visible
    environ: Mapping[str, str]


def look(environ: Mapping[str, str]) -> RankOnNode:
    """Read this rank's launcher variables, and this machine's files."""
    node = nodes.read()
    seen = visible.visible(node, environ)
    rank, size, local_rank = (int(environ[n]) for n in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    view = RankView(os.uname().nodename, rank, local_rank, node.cpus_allowed, seen.devices)
    return RankOnNode(view, size, int(environ["LOCAL_WORLD_SIZE"]), node, seen, environ)


class Part(NamedTuple):
    """The part of this rank in an arm."""

    request: arms.ArmRequest
    binding: apply.Binding
    rank: int  # among those that take part
    size: int
    local_size: int
    loader_workers: int
    environ: tuple[tuple[str, str], ...]  # variables that this rank is given

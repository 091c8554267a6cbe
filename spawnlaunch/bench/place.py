"""Where a rank is before it takes any seat, and where each arm would seat it."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from spawnlaunch import node as nodes
from spawnlaunch.bench import arms
from spawnlaunch.binding import decide
from spawnlaunch.binding.plan import Binding
from spawnlaunch.cpuset import CpuSet
from spawnlaunch.errors import UsageError
from spawnlaunch.node import Node
from spawnlaunch.node.visible import Visible, visible
from spawnlaunch.request import Program, Request
from spawnlaunch.run.environment import MARK
from spawnlaunch.values import Policy
from spawnlaunch.world import World

OWN_DEVICES = (
    "each rank sees other devices; start one launcher per node, which sees them all: srun "
    "--ntasks=$SLURM_NNODES --ntasks-per-node=1 --gpus-per-node=N ... --nproc N"
)
OWN_CPUS = (
    "the ranks were given CPUs of their own, which are respected; start with srun "
    "--cpu-bind=none to have them all to divide"
)


class View(NamedTuple):
    """What a rank sees of its node, told to the others."""

    host: str
    rank: int
    local_rank: int
    allowed: CpuSet
    devices: tuple[int | None, ...]


class Place(NamedTuple):
    """A rank on its node."""

    view: View
    size: int
    local_size: int
    node: Node
    seen: Visible
    environ: Mapping[str, str]


def look(environ: Mapping[str, str]) -> Place:
    """This rank, by its launcher's variables and this machine's files."""
    node = nodes.read()
    seen = visible(node, environ)
    rank, size, local_rank = (int(environ[n]) for n in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    view = View(os.uname().nodename, rank, local_rank, node.cpus_allowed, seen.devices)
    return Place(view, size, int(environ["LOCAL_WORLD_SIZE"]), node, seen, environ)


def seats(
    place: Place, everyone: Sequence[View], names: Sequence[str], threads: int | None
) -> dict[str, arms.Seats]:
    """The seats of this node's ranks under each arm, by local rank.

    Where ranks see different CPUs or devices, as tasks that a resource manager has bound do, each
    plans for itself, as such a task would: then the seats are of this rank alone. `threads` is what
    all of them compute with, if the user has said so. Raises UsageError.
    """
    alike = is_alike(place, everyone)
    _refuse_pinned(place, everyone)

    def planned(name: str) -> tuple[Binding, ...]:
        bindings = _plan(place, name, "local" if alike else "task")
        return tuple(b._replace(threads=threads or b.threads) for b in bindings)

    if alike:
        return arms.on_node(place.node, place.node.cpus_allowed, names, planned)
    masks = {view.allowed for view in everyone if view.host == place.view.host}
    why = OWN_CPUS if len(masks) > 1 else OWN_DEVICES
    return {
        name: arms.Seats(planned(arms.POLICIES[name]))
        if name in arms.POLICIES
        else arms.Seats((), why)
        for name in names
    }


def is_alike(place: Place, everyone: Sequence[View]) -> bool:
    """Whether all ranks of this node see the same of it."""
    here = [view for view in everyone if view.host == place.view.host]
    return len({(view.allowed, view.devices) for view in here}) == 1


def _refuse_pinned(place: Place, everyone: Sequence[View]) -> None:
    here = [view for view in everyone if view.host == place.view.host]
    if MARK in place.environ and len({view.allowed for view in here}) > 1:
        raise UsageError(
            "the launcher has pinned the ranks before the bench could; type python -m spawnlaunch "
            "--bind none -m spawnlaunch.bench, or leave the launcher out"
        )


def _plan(place: Place, policy: str, mode: str) -> tuple[Binding, ...]:
    """As the launcher plans in this mode."""
    request = Request(None, Program("bundled", "", ()), sys.executable, policy=Policy(policy))
    rank, local_rank = (place.view.rank, place.view.local_rank) if mode == "task" else (0, 0)
    world = World(
        mode=mode,
        rank=rank,
        world_size=place.size,
        local_rank=local_rank,
        local_world_size=place.local_size,
        node_rank=None,
        nnodes=None,
        master_addr="",
        master_port=0,
        run_id="",
    )
    return decide.decide(request, place.node, place.seen, world, place.environ).bindings

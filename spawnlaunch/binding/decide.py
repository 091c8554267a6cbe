"""From the machine, the world and the user's wishes to the seats of this launcher's ranks.

`plan` is the pure heart; here is what surrounds it: which CPUs may be divided, and all that is to
be said about the result.
"""

from __future__ import annotations

from spawnlaunch.binding import advice, openmp
from spawnlaunch.binding.plan import Binding, plan
from spawnlaunch.binding.seats import Task
from spawnlaunch.cpuset import CpuSet
from spawnlaunch.node import Node
from spawnlaunch.node.visible import Visible, step_devices
from spawnlaunch.records import NamedTuple
from spawnlaunch.request import Request
from spawnlaunch.world.model import World

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class Seats(NamedTuple):
    """The seats of the ranks that this launcher starts, in the order of local ranks."""

    bindings: tuple[Binding, ...]
    allowed: CpuSet  # what was divided
    warnings: tuple[str, ...]  # of this node


def decide(
    request: Request,
    node: Node,
    seen: Visible,
    world: World,
    environ: Mapping[str, str],
) -> Seats:
    """The seats of this launcher's ranks. Raises UsageError."""
    warnings = [*node.warnings, *seen.warnings, *openmp.hazards(environ)]
    allowed = node.cpus_allowed
    if request.widen:
        allowed, refusal = advice.widened(node)
        warnings += [refusal] if refusal else []
    task = _task(node, world, environ, allowed) if world.mode == "task" else None
    planned = plan(node, seen, world.local_world_size, request.policy, allowed=allowed, task=task)
    narrow = advice.mask_advice(node, planned.bindings, world.local_world_size, allowed)
    warnings += [*planned.warnings, *([narrow] if narrow else [])]
    return Seats(planned.bindings, allowed, tuple(dict.fromkeys(warnings)))


def _task(node: Node, world: World, environ: Mapping[str, str], allowed: CpuSet) -> Task:
    rank, size = world.local_rank, world.local_world_size
    return Task(
        rank,
        step_devices(node, environ, size),
        advice.own_mask(node, environ, rank, size, allowed),
    )

"""Compute the bindings of the node's other tasks for display; each task plans its own."""

from __future__ import annotations

from spawnlaunch.base import errors
from spawnlaunch.binding import apply, cores, plan
from spawnlaunch.cli import flags
from spawnlaunch.node import hardware
from spawnlaunch.node.visible import Visible
from spawnlaunch.world import identity

OF_DEVICES = "which devices they see is not known here"
OF_MASKS = "which CPUs they are allowed is not known here"


def bindings_of_all(
    request: flags.Request,
    node: hardware.Node,
    seen: Visible,
    resolution: identity.Resolution,
    own: apply.Binding,
) -> tuple[tuple[apply.Binding, ...], str]:
    """The bindings of all tasks on this node, of which this task's is `own`.

    Where those of the others are unknown the first value is `own` only, and the second says why.
    Where this task sees only the device at its own position among the step's, each other task
    counts as seeing only the device at its position.
    """
    world = resolution.world
    rank, size = world.local_rank, world.local_world_size
    if request.widen:
        node = cores.widened(node)[0]
    masks = resolution.masks()
    listed = masks.value if masks else ()
    view = plan.view_of_task(node, resolution)
    if view.has_private_mask and not listed:
        return (own,), OF_MASKS
    bindings: list[apply.Binding] = []
    for other in range(size):
        sees = _seen_by(other, node, seen, view.step_devices, rank, size)
        if sees is None:
            return (own,), OF_DEVICES
        allowed = listed[other % len(listed)] if view.has_private_mask else node.cpus_allowed
        task = view._replace(local_rank=other)
        try:
            planned = plan.plan(
                node._replace(cpus_allowed=allowed), sees, size, request.policy, task=task
            )
        except errors.UsageError:  # another task's error, which that task reports
            return (own,), OF_MASKS
        bindings += planned.bindings
    if bindings[rank].cpus != own.cpus:
        return (own,), OF_MASKS
    return tuple(bindings), ""


def _seen_by(
    other: int,
    node: hardware.Node,
    seen: Visible,
    step: tuple[int, ...] | None,
    rank: int,
    size: int,
) -> Visible | None:
    """The devices that another task sees; None where that is unknown."""
    own = seen.device_of(rank)
    if own is None:
        return seen
    vendor = node.devices[own].vendor
    everyone = sorted(step or (each.number for each in node.devices if each.vendor == vendor))
    if set(everyone) <= set(seen.devices):
        return seen
    if step and seen.devices == (own,) and len(everyone) == size and everyone[rank] == own:
        return seen._replace(devices=(everyone[other],))
    return None

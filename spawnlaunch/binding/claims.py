"""Find the device of each rank, and the cores that the rank may claim.

A rank may claim the usable CPUs next to its device. A rank with a device that has none of them, or
has an unknown place, is a guest: guests divide the cores that the others leave where these are
enough for one core each, else all ranks divide all cores. Guests prefer NUMA nodes that are near
their device.

In node mode the devices in use are those of the local ranks. A task of a resource manager may see
its own device only, so it divides by the devices of the whole step on this node where those are
known, else by all that sysfs shows: every task computes the same claims without any message to the
others.
"""

from __future__ import annotations

from collections.abc import Sequence

from spawnlaunch.base import cpuset, records
from spawnlaunch.binding import cores
from spawnlaunch.node import hardware
from spawnlaunch.node.visible import Visible


class TaskView(records.NamedTuple):
    """The facts that one task of a resource manager knows about the tasks on its node."""

    local_rank: int
    step_devices: tuple[int, ...] | None = None  # Device.number; None: not known
    has_private_mask: bool = False  # no other task may use this task's allowed CPUs


class Claimant(records.NamedTuple):
    """A rank of the plan, with its device and its claim."""

    local_rank: int
    device: int | None  # Device.number
    known: bool  # False: the rank has a device, and it is not known which
    claim: int  # position among all claims
    is_away: bool = False  # none of the CPUs next to its device is usable


class Claims(records.NamedTuple):
    """The claims of all ranks on the node, and the ranks of the plan.

    Claims are in the order of the devices, which is the same for every task.
    """

    all: list[cores.Claim]
    ranks: list[Claimant]
    warnings: list[str]


def of_node(
    node: hardware.Node, usable: Sequence[cores.Core], visible: Visible, local_size: int
) -> Claims:
    """The claims of all ranks to the usable cores."""
    device_of = [visible.device_of(rank) for rank in range(local_size)]
    unknown_last = sorted(
        range(local_size), key=lambda rank: (device_of[rank] is None, device_of[rank] or 0)
    )
    all_claims = _claims(node, usable, [device_of[rank] for rank in unknown_last])
    cpus, ranks = cores.cpus_of(usable), list[Claimant]()
    for claim, rank in enumerate(unknown_last):
        device, is_without = device_of[rank], not visible.devices
        is_away = _is_away(node, cpus, device)
        ranks.append(Claimant(rank, device, device is not None or is_without, claim, is_away))
    devices, warnings = len(visible.devices), list[str]()
    if 0 < devices < local_size:
        warnings.append(_crowded(local_size, devices, "ranks share devices"))
    if unknown := sorted(rank.local_rank for rank in ranks if not rank.known):
        warnings.append(_untold(unknown))
    return Claims(all_claims, sorted(ranks), warnings)


def of_task(
    node: hardware.Node,
    usable: Sequence[cores.Core],
    visible: Visible,
    local_size: int,
    task: TaskView,
) -> Claims:
    """The claims of one task, and of its peers among the `local_size` tasks on this node."""
    rank, warnings = task.local_rank, list[str]()
    cpus = cores.cpus_of(usable)
    task_device = visible.device_of(rank)
    if task_device is None or task.has_private_mask:
        # The devices of the other tasks are unknown: so there are as many equal claims as tasks;
        # this task's is number `rank`. A mask of the task's own is not divided.
        claimed = [task_device] * (1 if task.has_private_mask else local_size)
        claim = rank % len(claimed)
    else:
        claimed, claim = _among_peers(node, cpus, visible, local_size, task, task_device, warnings)
    known = task_device is not None or not visible.devices
    mine = Claimant(rank, task_device, known, claim, _is_away(node, cpus, task_device))
    if not mine.known:
        warnings.append(_untold([rank]))
    return Claims(_claims(node, usable, claimed), [mine], warnings)


def _among_peers(
    node: hardware.Node,
    usable: cpuset.CpuSet,
    visible: Visible,
    local_size: int,
    task: TaskView,
    task_device: int,
    warnings: list[str],
) -> tuple[list[int | None], int]:
    """The device of each claim on this node, and the position of the task's own claim."""
    everyone = _peers(node, task_device, task, warnings)
    # Where there are more tasks than devices, tasks that see a few use these in turn. Each task
    # divides them as if all tasks saw the same, so it has a place of its own there even if others
    # see other devices.
    shown = sorted({device for device in visible.devices if device is not None})
    takes_turns = 1 < len(shown) == len(visible.devices) < local_size
    takes_turns = takes_turns and len(everyone) < local_size
    peers = shown if takes_turns else everyone
    # A task that sees all devices of the step knows that the others do too, and so it knows the
    # device of each of them.
    sees_all = set(peers) <= set(visible.devices)
    device_of = [visible.device_of(other) for other in range(local_size if sees_all else 0)]
    if len(everyone) < local_size * (len(shown) if takes_turns else 1):
        unknown = "tasks on the same device share its cores, for no task knows which others are "
        outcome = "ranks share devices" if sees_all else f"{unknown}there"
        warnings.append(_crowded(local_size, len(peers), outcome))
    # Devices that this task does not see, next to CPUs that it may not use, belong to tasks there;
    # unless its own device, the only one that it sees, is next to such CPUs too.
    are_all_here = sees_all or task.step_devices is not None
    are_all_here = are_all_here or (len(shown) == 1 and _is_away(node, usable, task_device))
    claimed: list[int | None] = []
    for peer in peers:
        if are_all_here or peer in shown or not _is_away(node, usable, peer):
            claimed += [peer] * max(1, device_of.count(peer))
    return claimed, claimed.index(task_device) + device_of[: task.local_rank].count(task_device)


def _claims(
    node: hardware.Node, usable: Sequence[cores.Core], devices: Sequence[int | None]
) -> list[cores.Claim]:
    """The claim for each of these devices, with repetitions; None: a device of unknown place."""
    cpus = cores.cpus_of(usable)
    near = [(_local_cpus(node, device) or cpuset.EMPTY) & cpus for device in devices]
    hosts = cpuset.EMPTY.union(*near)
    unclaimed = [core for core in usable if core.cpus.isdisjoint(hosts)]
    is_enough = len(unclaimed) >= near.count(cpuset.EMPTY)
    divided = unclaimed if is_enough else usable
    is_short = not is_enough and len(usable) < len(devices)
    homes = set[int]() if is_short else {core.numa for core in divided}
    for_guests = cores.cpus_of(divided)
    return [
        cores.Claim(local) if local
        else cores.Claim(for_guests, _distances(node, device, homes), is_short)
        for local, device in zip(near, devices, strict=True)
    ]  # fmt: skip


def _local_cpus(node: hardware.Node, device: int | None) -> cpuset.CpuSet | None:
    """The CPUs next to the device, usable or not; None where its place is unknown."""
    return None if device is None else node.devices[device].local_cpus


def _is_away(node: hardware.Node, usable: cpuset.CpuSet, device: int | None) -> bool:
    """Whether a device of known place has no usable CPU next to it."""
    near = _local_cpus(node, device)
    return near is not None and near.isdisjoint(usable)


def _distances(
    node: hardware.Node, device: int | None, homes: set[int]
) -> tuple[tuple[int, int], ...]:
    """The distances from the device to these NUMA nodes; empty where unknown or all equal."""
    near = _local_cpus(node, device)
    if device is None or near is None:
        return ()
    stated = node.devices[device].numa
    at_home = [n.distances for n in node.numa if n.id == stated or n.cpus & near]
    nearest = {
        home: min(distance for row in at_home for other, distance in row if other == home)
        for home in homes
        if all(home in dict(row) for row in at_home) and at_home
    }
    return tuple(sorted(nearest.items())) if len(set(nearest.values())) > 1 else ()


def _peers(
    node: hardware.Node, task_device: int, task: TaskView, warnings: list[str]
) -> Sequence[int]:
    """The devices among which the tasks on this node divide the cores."""
    if task.step_devices is not None and task_device in task.step_devices:
        return sorted(set(task.step_devices))
    if task.step_devices is not None:
        warnings.append(
            f"the resource manager names devices {cpuset.format(task.step_devices)} for this "
            f"node, and this task sees device {task_device}: cores are divided among all devices "
            "of the node"
        )
    vendor = node.devices[task_device].vendor
    return [each.number for each in node.devices if each.vendor == vendor]


def _crowded(ranks: int, devices: int, outcome: str) -> str:
    return f"{ranks} local ranks on {devices} device{'' if devices == 1 else 's'}: {outcome}"


def _untold(ranks: Sequence[int]) -> str:
    return (
        f"{named(ranks)}: which device it is cannot be told from the list of visible "
        "devices; the cores are shared out without regard to it"
    )


def named(ranks: Sequence[int]) -> str:
    """Return the ranks in words: `local rank 3`, `local ranks 0-1,3`."""
    return f"local rank{'' if len(ranks) == 1 else 's'} {cpuset.format(ranks)}"


# Facts of a task about the others on its node


def step_devices(
    node: hardware.Node, numbers: Sequence[int], local_tasks: int
) -> tuple[int, ...] | None:
    """The devices of the whole step on this node, by the manager's `numbers`.

    These count one vendor's devices by address. None where the node has no such devices, or the
    numbers are fewer than the tasks: then they may be this task's own devices only.
    """
    vendor = next((v for v in hardware.VENDORS if any(d.vendor == v for d in node.devices)), None)
    devices = [device.number for device in node.devices if device.vendor == vendor]
    if not numbers or len(numbers) < local_tasks or max(numbers) >= len(devices):
        return None
    return tuple(devices[number] for number in numbers)


def is_private_mask(
    node: hardware.Node, listed: Sequence[cpuset.CpuSet], local_rank: int, local_size: int
) -> bool:
    """Whether only this task has the allowed CPUs, so that it does not divide them with others.

    The manager's masks of the tasks here decide; where there are more tasks than masks, the list
    starts again. Without masks a mask of one core counts as the task's own, as it cannot be
    divided, unless the tasks here have no other core. Any other mask counts as shared by the tasks
    on this node: to divide it wrongly loses cores, and not to divide it could give a core to two
    tasks.
    """
    allowed = node.cpus_allowed
    if not listed:
        is_all = local_size > 1 and allowed >= (node.cpus_cgroup or node.cpus_online)
        return cores.count_cores(node, allowed) == 1 and not is_all
    masks = [listed[i % len(listed)] for i in range(local_size)]
    mine, others = masks[local_rank], masks[:local_rank] + masks[local_rank + 1 :]
    return bool(allowed) and allowed <= mine and all(mine.isdisjoint(other) for other in others)

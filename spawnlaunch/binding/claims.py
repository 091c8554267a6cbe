"""Which device each rank uses, and which cores it may claim for that.

A rank may claim the CPUs next to its device that may be used. In node mode the devices in use are
those of the local ranks. A task that a resource manager started may see its own device alone, so it
divides by the devices of the whole step on this node where those are known, else by all that sysfs
shows: every task computes the same claims without a word to the others.
"""

from __future__ import annotations

from spawnlaunch import cpuset, records
from spawnlaunch.binding import cores
from spawnlaunch.node.devices import VENDORS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from spawnlaunch.node import hardware
    from spawnlaunch.node.visible import Visible


class TaskView(records.NamedTuple):
    """What one task, which a resource manager started, knows of the others on this node."""

    local_rank: int
    step_devices: tuple[int, ...] | None = None  # Device.number; None: not known
    own_mask: bool = False  # the allowed CPUs are this task's alone: nobody else divides them


class Claimant(records.NamedTuple):
    """A rank that is planned, its device and its claim."""

    local_rank: int
    device: int | None  # Device.number
    known: bool  # False: the rank has a device and it cannot be told which
    claim: int | None  # position among all claims; None: nothing next to the device is allowed


class Claims(records.NamedTuple):
    """The claims of everyone on the node, and the ranks that are planned.

    They are collected in the order of the devices, which is the same for every task.
    """

    cpus: list[cpuset.CpuSet]  # of each claim
    ranks: list[Claimant]
    warnings: list[str]
    sharers: int  # ranks that divide all of the allowed CPUs where there are no shares


def of_node(
    node: hardware.Node, usable: cpuset.CpuSet, visible: Visible, local_size: int
) -> Claims:
    """The claims of all ranks to the CPUs that may be used."""
    device_of = [visible.device_of(rank) for rank in range(local_size)]
    cpus: list[cpuset.CpuSet] = []
    ranks: list[Claimant] = []
    unknown_last = sorted(
        range(local_size), key=lambda rank: (device_of[rank] is None, device_of[rank] or 0)
    )
    for rank in unknown_last:
        device = device_of[rank]
        near = _next_to(node, usable, device)
        known = device is not None or not visible.devices
        ranks.append(Claimant(rank, device, known, len(cpus) if near else None))
        cpus += [near] if near else []
    devices, warnings = len(visible.devices), list[str]()
    if 0 < devices < local_size:
        warnings.append(_crowded(local_size, devices, "ranks share devices"))
    if unknown := sorted(rank.local_rank for rank in ranks if not rank.known):
        warnings.append(_untold(unknown))
    return Claims(cpus, sorted(ranks), warnings, local_size)


def of_task(
    node: hardware.Node, usable: cpuset.CpuSet, visible: Visible, local_size: int, task: TaskView
) -> Claims:
    """The claims of one task, and of its peers among the `local_size` tasks on this node."""
    rank = task.local_rank
    own = visible.device_of(rank)
    if own is not None and not task.own_mask:
        return _among_peers(node, usable, visible, local_size, task, own)
    near = _next_to(node, usable, own)
    # Which devices the others have is not known: so there are as many equal claims as tasks, of
    # which ours has the number `rank`. A mask of our own is divided with nobody.
    everyone = 1 if task.own_mask else local_size
    known = own is not None or not visible.devices
    mine = Claimant(rank, own, known, rank % everyone if near else None)
    warnings = [] if known else [_untold([rank])]
    return Claims([near] * everyone if near else [], [mine], warnings, everyone)


def _among_peers(
    node: hardware.Node,
    usable: cpuset.CpuSet,
    visible: Visible,
    local_size: int,
    task: TaskView,
    own: int,
) -> Claims:
    """The claims of a task with the device `own`, and of those on the other devices."""
    rank, warnings = task.local_rank, list[str]()
    everyone = _peers(node, own, task, warnings)
    # Where ranks go around the few devices that they see, each divides these as if all saw the
    # same: so it has a place of its own there, also if each task sees others.
    shown = sorted({device for device in visible.devices if device is not None})
    goes_around = 1 < len(shown) == len(visible.devices) < local_size
    peers = shown if goes_around else everyone
    # A task that sees all the devices of the step knows that the others do too, and so which
    # device each of them takes.
    sees_all = set(peers) <= set(visible.devices)
    device_of = [visible.device_of(other) for other in range(local_size if sees_all else 0)]
    cpus: list[cpuset.CpuSet] = []
    claim = None
    for peer in peers:
        near = _next_to(node, usable, peer)
        if not near:
            continue
        if peer == own:
            claim = len(cpus) + device_of[:rank].count(own)
        cpus += [near] * max(1, device_of.count(peer))
    if len(everyone) < local_size * (len(shown) if goes_around else 1):
        unknown = "tasks on the same device share its cores, for no task knows which others are "
        outcome = "ranks share devices" if sees_all else f"{unknown}there"
        warnings.append(_crowded(local_size, len(peers), outcome))
    return Claims(cpus, [Claimant(rank, own, True, claim)], warnings, local_size)


def _next_to(node: hardware.Node, usable: cpuset.CpuSet, device: int | None) -> cpuset.CpuSet:
    """The CPUs next to the device; all where that is unknown or there is none."""
    local = None if device is None else node.devices[device].local_cpus
    return usable if local is None else local & usable


def _peers(node: hardware.Node, own: int, task: TaskView, warnings: list[str]) -> Sequence[int]:
    """The devices that the tasks on this node divide the cores among."""
    if task.step_devices is not None and own in task.step_devices:
        return sorted(set(task.step_devices))
    if task.step_devices is not None:
        warnings.append(
            f"the resource manager names devices {cpuset.format(task.step_devices)} for this "
            f"node, and this task sees device {own}: cores are divided among all devices of "
            "the node"
        )
    vendor = node.devices[own].vendor
    return [each.number for each in node.devices if each.vendor == vendor]


def _crowded(ranks: int, devices: int, outcome: str) -> str:
    return f"{ranks} local ranks on {devices} device{'' if devices == 1 else 's'}: {outcome}"


def _untold(ranks: Sequence[int]) -> str:
    return (
        f"{named(ranks)}: which device it is cannot be told from the list of visible "
        "devices; the cores are shared out without regard to it"
    )


def named(ranks: Sequence[int]) -> str:
    """`local rank 3`, `local ranks 0-1,3`"""
    return f"local rank{'' if len(ranks) == 1 else 's'} {cpuset.format(ranks)}"


# What a task knows of the others on its node


def step_devices(
    node: hardware.Node, numbers: Sequence[int], local_tasks: int
) -> tuple[int, ...] | None:
    """The devices of the whole step on this node, of which its manager says the `numbers`.

    They count one vendor's devices by address. None where they are no devices here, or fewer than
    the tasks: then they may be this task's own alone.
    """
    vendor = next((v for v in VENDORS if any(d.vendor == v for d in node.devices)), None)
    devices = [device.number for device in node.devices if device.vendor == vendor]
    if not numbers or len(numbers) < local_tasks or max(numbers) >= len(devices):
        return None
    return tuple(devices[number] for number in numbers)


def is_own_mask(
    node: hardware.Node, listed: Sequence[cpuset.CpuSet], local_rank: int, local_size: int
) -> bool:
    """Whether the allowed CPUs are this task's alone, so that no other task divides them.

    The manager says so in the masks that it has given to the tasks here, which are used again from
    the first where there are more tasks. Without masks one core is taken for a task's own, for it
    cannot be divided, unless there is nothing else for any task here. Any other mask is taken for
    one that the tasks on this node share: dividing it again loses cores, and not dividing it would
    give them out twice.
    """
    allowed = node.cpus_allowed
    if not listed:
        is_all = local_size > 1 and allowed >= (node.cpus_cgroup or node.cpus_online)
        return cores.count_cores(node, allowed) == 1 and not is_all
    masks = [listed[i % len(listed)] for i in range(local_size)]
    mine, others = masks[local_rank], masks[:local_rank] + masks[local_rank + 1 :]
    return bool(allowed) and allowed <= mine and all(mine.isdisjoint(other) for other in others)

"""Which device each rank uses, and which cores it may claim for that.

A device owns its territory: the CPUs next to it that may be used. In node mode the devices in use
are those of the local ranks. A task that a resource manager started may see its own device alone,
so it divides by the devices of the whole step on this node where those are known, else by all that
sysfs shows: every task computes the same claims without a word to the others.
"""

from __future__ import annotations

from spawnlaunch import cpuset
from spawnlaunch.cpuset import CpuSet
from spawnlaunch.node import Node
from spawnlaunch.node.visible import Visible
from spawnlaunch.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class Task(NamedTuple):
    """One rank that a resource manager started, among others on this node."""

    local_rank: int
    step_devices: tuple[int, ...] | None = None  # Device.number; None: not known
    own_mask: bool = False  # the allowed CPUs are this task's alone: nobody else divides them


class Seat(NamedTuple):
    """A rank, its device and its claim."""

    local_rank: int
    device: int | None  # Device.number
    known: bool  # False: the rank has a device and it cannot be told which
    claim: int | None  # position in Seating.claims; None: nothing next to the device is allowed


class Seating(NamedTuple):
    """The claims of everyone on the node, and the seats of the ranks that are planned."""

    claims: tuple[CpuSet, ...]
    seats: tuple[Seat, ...]
    warnings: tuple[str, ...]


class _Claims:
    """Collects claims in the order of the devices, which is the same for every task."""

    def __init__(self, node: Node, cpus: CpuSet) -> None:
        self._node = node
        self._cpus = cpus
        self.made: list[CpuSet] = []

    def add(self, device: int | None) -> int | None:
        """Claim what is next to the device; everything where that is unknown or there is none."""
        local = None if device is None else self._node.devices[device].local_cpus
        claim = self._cpus if local is None else local & self._cpus
        if not claim:
            return None
        self.made.append(claim)
        return len(self.made) - 1


def of_node(node: Node, visible: Visible, local_size: int, cpus: CpuSet) -> Seating:
    """The seats of all `local_size` ranks; rank r uses the r-th visible device, and around again.

    `cpus` are those that may be used.
    """
    device_of = [_device_of(visible, rank) for rank in range(local_size)]
    claims = _Claims(node, cpus)
    claim_of = {rank: claims.add(device_of[rank]) for rank in _by_device(device_of)}
    known = not visible.devices
    seats = [
        Seat(rank, device, known or device is not None, claim_of[rank])
        for rank, device in enumerate(device_of)
    ]
    return Seating(
        tuple(claims.made), tuple(seats), _crowded(local_size, len(visible.devices), True)
    )


def of_task(node: Node, visible: Visible, local_size: int, cpus: CpuSet, task: Task) -> Seating:
    """The seat of one task among the `local_size` tasks on this node."""
    own = _device_of(visible, task.local_rank)
    claims = _Claims(node, cpus)
    if own is None:
        everyone = 1 if task.own_mask else local_size
        numbers = [claims.add(None) for _ in range(everyone)]
        seat = Seat(task.local_rank, None, not visible.devices, numbers[task.local_rank % everyone])
        return Seating(tuple(claims.made), (seat,), ())
    if task.own_mask:
        seat = Seat(task.local_rank, own, True, claims.add(own))
        return Seating(tuple(claims.made), (seat,), ())
    peers, warnings = _peers(node, own, task)
    ranks_on = _ranks_on(peers, visible, local_size)
    mine: list[int | None] = []
    for device in peers:
        made = [claims.add(device) for _ in ranks_on[device] or [task.local_rank]]
        if device == own:
            mine = made
    slot = ranks_on[own].index(task.local_rank) if task.local_rank in ranks_on[own] else 0
    warnings += _crowded(local_size, len(peers), bool(ranks_on[own]))
    return Seating(tuple(claims.made), (Seat(task.local_rank, own, True, mine[slot]),), warnings)


def _device_of(visible: Visible, rank: int) -> int | None:
    return visible.devices[rank % len(visible.devices)] if visible.devices else None


def _by_device(device_of: Sequence[int | None]) -> list[int]:
    """Ranks in the order of their devices, those with an unknown one last."""
    return sorted(
        range(len(device_of)),
        key=lambda rank: (device_of[rank] is None, device_of[rank] or 0, rank),
    )


def _peers(node: Node, own: int, task: Task) -> tuple[Sequence[int], tuple[str, ...]]:
    """The devices that the tasks on this node divide the cores among."""
    if task.step_devices is not None and own in task.step_devices:
        return sorted(set(task.step_devices)), ()
    vendor = node.devices[own].vendor
    everything = [device.number for device in node.devices if device.vendor == vendor]
    if task.step_devices is None:
        return everything, ()
    return everything, (
        f"the resource manager names devices {cpuset.format(task.step_devices)} for this node, and "
        f"this task sees device {own}: cores are divided among all devices of the node",
    )


def _ranks_on(peers: Sequence[int], visible: Visible, local_size: int) -> dict[int, list[int]]:
    """The ranks on each device; empty lists where tasks see different devices.

    A task that sees all the devices of the step knows that the others do too, and so which device
    each of them takes.
    """
    on: dict[int, list[int]] = {device: [] for device in peers}
    if set(peers) <= set(visible.devices):
        for rank in range(local_size):
            device = _device_of(visible, rank)
            if device in on:
                on[device].append(rank)
    return on


def _crowded(ranks: int, devices: int, who_is_known: bool) -> tuple[str, ...]:
    if not 0 < devices < ranks:
        return ()
    noun = "device" if devices == 1 else "devices"
    outcome = (
        "ranks share devices"
        if who_is_known
        else "tasks on the same device share its cores, for no task knows which others are there"
    )
    return (f"{ranks} local ranks on {devices} {noun}: {outcome}",)

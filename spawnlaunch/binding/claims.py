"""Which device each rank uses, and which cores it may claim for that.

A rank may claim the CPUs next to its device that may be used. In node mode the devices in use are
those of the local ranks. A task that a resource manager started may see its own device alone, so it
divides by the devices of the whole step on this node where those are known, else by all that sysfs
shows: every task computes the same claims without a word to the others.
"""

from __future__ import annotations

from spawnlaunch import cpuset
from spawnlaunch.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from spawnlaunch.cpuset import CpuSet
    from spawnlaunch.node import Node
    from spawnlaunch.node.visible import Visible


class Task(NamedTuple):
    """One rank that a resource manager started, among others on this node."""

    local_rank: int
    step_devices: tuple[int, ...] | None = None  # Device.number; None: not known
    own_mask: bool = False  # the allowed CPUs are this task's alone: nobody else divides them


class Claimant(NamedTuple):
    """A rank that is planned, its device and its claim."""

    local_rank: int
    device: int | None  # Device.number
    known: bool  # False: the rank has a device and it cannot be told which
    claim: int | None  # position among all claims; None: nothing next to the device is allowed


class Claims:
    """The claims of everyone on the node, and the ranks that are planned.

    They are collected in the order of the devices, which is the same for every task.
    """

    def __init__(self, node: Node, cpus: CpuSet) -> None:
        self._node = node
        self._cpus = cpus  # those that may be used
        self.cpus: list[CpuSet] = []  # of each claim
        self.ranks: list[Claimant] = []
        self.warnings: list[str] = []

    def of_node(self, visible: Visible, local_size: int) -> None:
        """Claim for all ranks; rank r uses the r-th visible device, and around again."""
        device_of = [_device_of(visible, rank) for rank in range(local_size)]
        by_device = sorted(
            range(local_size), key=lambda rank: (device_of[rank] is None, device_of[rank] or 0)
        )  # those with an unknown one last
        claim_of = {rank: self._claim(device_of[rank]) for rank in by_device}
        for rank, device in enumerate(device_of):
            self._plan(rank, device, visible, claim_of[rank])
        self._warn_if_crowded(local_size, len(visible.devices), True)

    def of_task(self, visible: Visible, local_size: int, task: Task) -> None:
        """Claim for one task and for its peers among the `local_size` tasks on this node."""
        rank, own = task.local_rank, _device_of(visible, task.local_rank)
        if own is None or task.own_mask:
            everyone = 1 if task.own_mask else local_size
            made = [self._claim(own) for _ in range(everyone)]
            self._plan(rank, own, visible, made[rank % everyone])
            return
        peers = self._peers(own, task)
        ranks_on: dict[int, list[int]] = {device: [] for device in peers}
        # A task that sees all the devices of the step knows that the others do too, and so which
        # device each of them takes.
        if set(peers) <= set(visible.devices):
            for other in range(local_size):
                device = _device_of(visible, other)
                if device in ranks_on:
                    ranks_on[device].append(other)
        mine: list[int | None] = []
        for peer in peers:
            made = [self._claim(peer) for _ in ranks_on[peer] or [rank]]
            mine = made if peer == own else mine
        slot = ranks_on[own].index(rank) if rank in ranks_on[own] else 0
        self._plan(rank, own, visible, mine[slot])
        self._warn_if_crowded(local_size, len(peers), bool(ranks_on[own]))

    def _claim(self, device: int | None) -> int | None:
        """Claim what is next to the device; everything where that is unknown or there is none."""
        local = None if device is None else self._node.devices[device].local_cpus
        claim = self._cpus if local is None else local & self._cpus
        if not claim:
            return None
        self.cpus.append(claim)
        return len(self.cpus) - 1

    def _plan(self, rank: int, device: int | None, visible: Visible, claim: int | None) -> None:
        known = device is not None or not visible.devices
        self.ranks.append(Claimant(rank, device, known, claim))

    def _peers(self, own: int, task: Task) -> Sequence[int]:
        """The devices that the tasks on this node divide the cores among."""
        if task.step_devices is not None and own in task.step_devices:
            return sorted(set(task.step_devices))
        if task.step_devices is not None:
            self.warnings.append(
                f"the resource manager names devices {cpuset.format(task.step_devices)} for this "
                f"node, and this task sees device {own}: cores are divided among all devices of "
                "the node"
            )
        devices = self._node.devices
        return [each.number for each in devices if each.vendor == devices[own].vendor]

    def _warn_if_crowded(self, ranks: int, devices: int, who_is_known: bool) -> None:
        if not 0 < devices < ranks:
            return
        noun = "device" if devices == 1 else "devices"
        outcome = (
            "ranks share devices"
            if who_is_known
            else "tasks on the same device share its cores, for no task knows which others are "
            "there"
        )
        self.warnings.append(f"{ranks} local ranks on {devices} {noun}: {outcome}")


def _device_of(visible: Visible, rank: int) -> int | None:
    return visible.devices[rank % len(visible.devices)] if visible.devices else None

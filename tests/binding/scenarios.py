"""Situations on whole machines: what is allowed and visible to one launcher, or to each task's.

Ordinary ones (all devices, listed in any order, some of them, a core of each L3 group kept free)
and unlucky ones: a cpuset beside one device alone, one hardware thread per core, tasks in a cpuset
that they share, or that is not beside their device.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from spawnlaunch.base import cpuset
from spawnlaunch.base.cpuset import CpuSet
from spawnlaunch.node import pci
from tests import machines
from tests.binding.rules import Expected, Group, Placed, violations
from tests.machines.tree import KINDS, Gpu, Machine, address

VARIABLES = {pci.AMD: "ROCR_VISIBLE_DEVICES", pci.NVIDIA: "CUDA_VISIBLE_DEVICES"}
# Level Zero keeps an order of its own, whatever a list says.
MACHINES = [*(each for each in machines.ALL if each != machines.AURORA), machines.POWER9]


class Start(NamedTuple):
    """A launcher and the devices that it sees: of all ranks, or of the one of its task."""

    visible: tuple[int, ...]
    ranks: int  # on this node
    local_rank: int | None = None  # None: it starts all of them

    def environ(self, machine: Machine) -> dict[str, str]:
        """The variable that shows it these devices."""
        return {variable(machine): ",".join(map(str, self.visible))}


class Scenario(NamedTuple):
    """What may be used on a machine, and who starts ranks there."""

    name: str
    allowed: CpuSet
    starts: tuple[Start, ...]


def devices(machine: Machine) -> list[Gpu]:
    """The devices in the order of their addresses, without what else is on the PCI bus."""
    return [gpu for gpu in machine.gpus if KINDS[gpu.vendor][0] in VARIABLES]


def addresses(machine: Machine) -> list[str]:
    """The PCI addresses of the devices."""
    return [address(machine, i) for i, gpu in enumerate(machine.gpus) if gpu in devices(machine)]


def variable(machine: Machine) -> str:
    """The variable by which the vendor hides devices."""
    return VARIABLES[KINDS[devices(machine)[0].vendor][0]]


def cores_of(machine: Machine) -> list[CpuSet]:
    """The hardware threads of each core."""
    return [cpuset.parse(core) for core in machine.cores]


def of(machine: Machine) -> Iterator[Scenario]:
    """The situations on this machine."""
    cores, local = cores_of(machine), [cpuset.parse(gpu.cpus) for gpu in devices(machine)]
    jobs = cpuset.EMPTY.union(*cores) - cpuset.parse(machine.reserved)
    count = len(local)
    every = tuple(range(count))
    together = (Start(every, count),)
    yield Scenario("all devices", jobs, together)
    yield Scenario("devices in reverse", jobs, (Start(every[::-1], count),))
    yield Scenario("every other device", jobs, (Start(every[1::2], count // 2),))
    kept = [first_core(cores, jobs & cpuset.parse(group)) for group in machine.l3]
    yield Scenario("first core of each L3 reserved", jobs.difference(*kept), together)
    yield Scenario("cpuset beside device 0", jobs & local[0], together)
    threads = frozenset(min(core & jobs) for core in cores if core & jobs)
    yield Scenario("one hardware thread per core", threads, together)
    last = Start((count - 1,), count, count - 1)
    yield Scenario("task in the cpuset beside its device", jobs & local[-1], (last,))
    tasks = tuple(Start((device,), count, device) for device in every)
    yield Scenario("tasks in a cpuset that they share", jobs, tasks)
    yield Scenario("cpuset beside other devices", jobs - local[0], (Start((0,), 1),))


def first_core(cores: Sequence[CpuSet], allowed: CpuSet) -> CpuSet:
    """The first core that is allowed."""
    return next(core for core in cores if core & allowed)


def broken_rules(
    machine: Machine, scenario: Scenario, placed: Sequence[Placed], warned: bool
) -> list[str]:
    """The rules that a plan for this situation breaks."""
    near = [scenario.allowed & cpuset.parse(gpu.cpus) for gpu in devices(machine)]
    expected = [Expected(i, near[i]) for start in scenario.starts for i in start.visible]
    cores, are_tasks = cores_of(machine), scenario.starts[0].local_rank is not None
    claims = Counter(near if are_tasks else [rank.near for rank in expected])
    even = sum(1 for core in cores if core & scenario.allowed) // len(expected)
    enough = len(cores) if all(claims) else even  # ranks without a CPU of their own share in
    groups = []
    for claim, sharing in claims.items():
        ranks = [number for number, rank in enumerate(expected) if claim and rank.near == claim]
        available = sum(1 for core in cores if core & claim)
        if ranks:
            groups.append(Group(ranks, available, min(available // sharing, enough)))
    return violations(placed, expected, groups, scenario.allowed, cores, warned)

"""The table that puts torchrun's --numa-binding beside the launcher's default, on many machines.

Each machine of tests/machines is played in the situations of tests/binding/scenarios.py in which
one launcher starts all ranks.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from docs import numa_binding
from docs.numa_binding import Placed, RefusedError
from spawnlaunch.base import cpuset
from spawnlaunch.base.cpuset import CpuSet
from spawnlaunch.binding.cores import count_cores
from spawnlaunch.binding.plan import bind_ranks
from spawnlaunch.cli.flags import Program, Request
from spawnlaunch.node import Node
from spawnlaunch.node.visible import Visible, visible
from spawnlaunch.world import identity
from tests import machines
from tests.binding import scenarios
from tests.machines import small
from tests.machines.tree import Machine, node_of

DEFAULT = "spawnlaunch"
POLICIES = (DEFAULT, *numa_binding.MODES)
DISJOINT, EQUAL, LOCAL, INSIDE, THREADS = "disjoint", "equal", "local", "inside", "threads"
PROPERTIES = {
    DISJOINT: "no core has two ranks, where the mask has a core for each",
    EQUAL: "ranks with the same choice of CPUs differ by one core at most, of each kind of cores",
    LOCAL: "all CPUs of a rank are next to its device, or on its NUMA node, where some next to it "
    "are allowed",
    INSIDE: "each rank has CPUs, of the mask alone; a launch that is refused breaks this alone",
    THREADS: "a rank has a thread for each of its cores (fewer where a quota of CPU time is less), "
    "and all ranks together no more than the mask has cores",
}

HEAD = """\
`torchrun --numa-binding` has four policies. This table has the documented rules of torchrun 2.13,
and the default of spawnlaunch, on {machines} machines of the tests ({published} are of sites and
vendors, who publish them) in {situations} situations: all devices or some, in any order; a mask of
all CPUs, without the first core of each L3 group, of one hardware thread of each core, of the CPUs
next to one device, or of all others. A cell has the number of situations in which a property is
broken; `-`: in none.
"""
TAIL = """\
torchrun exports `OMP_NUM_THREADS=1` for several ranks, and refuses `--numa-binding` where
`torch.cuda` counts fewer devices than ranks. `python -m docs.generate` makes this table."""


class Situation(NamedTuple):
    """A launcher that starts `ranks` ranks on a node with this mask."""

    name: str
    node: Node
    shown: Visible
    ranks: int


def every_machine() -> tuple[Machine, ...]:
    """All machines of the tests."""
    return (*machines.NAMED.values(), *small.ALL)


def situations(machine: Machine) -> list[Situation]:
    """Return the distinct situations in which one launcher starts all ranks."""
    distinct: dict[tuple[CpuSet, Visible, int], Situation] = {}
    for each in _situations(machine):
        if each.ranks and each.node.cpus_allowed:
            distinct.setdefault((each.node.cpus_allowed, each.shown, each.ranks), each)
    return list(distinct.values())


def _situations(machine: Machine) -> Iterator[Situation]:
    node = node_of(machine)
    if scenarios.devices(machine):
        for scenario in scenarios.of(machine):
            start = scenario.starts[0]
            if start.local_rank is None:
                there = node._replace(cpus_allowed=scenario.allowed)
                shown = visible(node, start.environ(machine))
                yield Situation(scenario.name, there, shown, start.ranks)
        return
    shown = visible(node, {})
    ranks = len(shown.devices) or max(2, sum(each.kind == "cpu" for each in node.numa))
    mask = node.cpus_allowed - cpuset.parse(machine.reserved)
    reserved = [next(core for core in node.cores if core & group) for group in node.l3]
    masks = {
        "all CPUs": mask,
        "first core of each L3 reserved": mask.difference(*reserved),
        "one hardware thread per core": mask & {min(core) for core in node.cores},
    }
    for name, allowed in masks.items():
        yield Situation(name, node._replace(cpus_allowed=allowed), shown, ranks)


def placed(policy: str, situation: Situation) -> list[Placed] | None:
    """Return the place of each rank under a policy; None where the launch is refused."""
    _, node, shown, ranks = situation
    if policy == DEFAULT:
        world = identity.World(identity.LOCAL, 0, ranks, 0, ranks, 0, 1, "", 0, "")
        request = Request(Program("script", "x.py", ()), "python", sysfs_root="/")
        plan = bind_ranks(request, node, shown, identity.Resolution(world, {}, (), (), {}))
        return [Placed(binding.cpus, binding.threads) for binding in plan.bindings]
    devices = [node.devices[number] for number in shown.devices if number is not None]
    gpus = [device for device in devices if device.vendor in numa_binding.VENDORS]
    try:
        return numa_binding.place_ranks(policy, node, gpus, ranks)
    except RefusedError:
        return None


def broken(situation: Situation, places: Sequence[Placed] | None) -> set[str]:
    """Return the properties that do not hold."""
    if places is None:
        return {INSIDE}
    return {name for name, holds in JUDGES.items() if not holds(situation, places)}


def _is_disjoint(situation: Situation, places: Sequence[Placed]) -> bool:
    node = situation.node
    if count_cores(node, node.cpus_to_share) < len(places):
        return True
    cores = [_cores(node, place.cpus) for place in places]
    return all(first.isdisjoint(second) for first, second in combinations(cores, 2))


def _is_equal(situation: Situation, places: Sequence[Placed]) -> bool:
    node = situation.node
    choices = [_near(situation, rank) for rank in range(len(places))]
    kinds = [node.cpus_online, *(kind.cpus for kind in node.kinds)]
    for kind in kinds:
        counts = [count_cores(node, place.cpus & kind) for place in places]
        for i, j in combinations(range(len(places)), 2):
            if choices[i] == choices[j] and abs(counts[i] - counts[j]) > 1:
                return False
    return True


def _is_local(situation: Situation, places: Sequence[Placed]) -> bool:
    node = situation.node
    for rank, place in enumerate(places):
        number = situation.shown.device_of(rank)
        device = None if number is None else node.devices[number]
        if device and device.local_cpus and device.local_cpus & node.cpus_allowed:
            homes = (each.cpus for each in node.numa if each.id == device.numa)
            if not any(place.cpus <= near for near in (device.local_cpus, *homes)):
                return False
    return True


def _is_inside(situation: Situation, places: Sequence[Placed]) -> bool:
    return all(place.cpus and place.cpus <= situation.node.cpus_allowed for place in places)


def _has_threads(situation: Situation, places: Sequence[Placed]) -> bool:
    node, ranks = situation.node, len(places)
    most = max(1, int(node.quota.cpus / ranks)) if node.quota else len(node.cores)
    cores = [count_cores(node, place.cpus) for place in places]
    threads = [
        cores[i] if place.threads is None else place.threads for i, place in enumerate(places)
    ]
    together = max(count_cores(node, node.cpus_allowed), ranks)
    return threads == [min(n, most) for n in cores] and sum(threads) <= together


JUDGES: Mapping[str, Callable[[Situation, Sequence[Placed]], bool]] = {
    DISJOINT: _is_disjoint,
    EQUAL: _is_equal,
    LOCAL: _is_local,
    INSIDE: _is_inside,
    THREADS: _has_threads,
}


def _cores(node: Node, cpus: CpuSet) -> set[int]:
    return {i for i, core in enumerate(node.cores) if core & cpus}


def _near(situation: Situation, rank: int) -> CpuSet:
    """The allowed CPUs next to a rank's device; all where none is, or where that is not known."""
    node, number = situation.node, situation.shown.device_of(rank)
    local = None if number is None else node.devices[number].local_cpus
    return (local or cpuset.EMPTY) & node.cpus_to_share or node.cpus_to_share


def counted(machine: Machine) -> dict[str, Counter[str]]:
    """Count, by policy, the situations of a machine in which each property is broken."""
    every = situations(machine)
    return {
        policy: Counter(name for each in every for name in broken(each, placed(policy, each)))
        for policy in POLICIES
    }


def worse(counts: Mapping[str, Counter[str]]) -> list[tuple[str, str]]:
    """Return the policies of torchrun, and the properties in which the default is not as good."""
    return [
        (policy, name)
        for policy in numa_binding.MODES
        for name in PROPERTIES
        if counts[DEFAULT][name] > counts[policy][name]
    ]


def section() -> Iterator[str]:
    """Yield the lines of the section of the page."""
    every = every_machine()
    sums: dict[str, Counter[str]] = {policy: Counter() for policy in POLICIES}
    for machine in every:
        for policy, counts in counted(machine).items():
            sums[policy] += counts
    total = sum(len(situations(machine)) for machine in every)
    yield HEAD.format(machines=len(every), published=len(machines.ALL), situations=total)
    titles = " | ".join(f"torchrun, {mode}" for mode in numa_binding.MODES)
    yield f"| property | {DEFAULT} | {titles} |"
    yield "|---" * (1 + len(POLICIES)) + "|"
    for name, meaning in PROPERTIES.items():
        cells = (str(sums[policy][name] or "-") for policy in POLICIES)
        yield f"| **{name}**: {meaning} | {' | '.join(cells)} |"
    yield ""
    yield TAIL

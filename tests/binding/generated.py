"""Machines that nobody built: odd core counts, uneven SMT, offline CPUs, sparse NUMA ids."""

from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from spawnlaunch.base.cpuset import CpuSet
from spawnlaunch.node import Device, Kind, Node, Numa


class Situation(NamedTuple):
    """A node and the devices that a launcher sees on it, one for each rank."""

    node: Node
    visible: tuple[int, ...]


@st.composite
def situations(draw: DrawFn) -> Situation:
    """Any machine of up to 64 devices, with any cpuset."""
    l3, cores_of = _cores(draw)
    cores = [core for group in cores_of for core in group]
    everything = sorted(frozenset().union(*cores))
    offline = draw(st.frozensets(st.sampled_from(everything), max_size=len(everything) // 2))
    online = frozenset(everything) - offline or frozenset(everything)
    numa = _numa(draw, [group & online for group in l3])
    allowed = draw(st.frozensets(st.sampled_from(sorted(online)), min_size=1))
    if draw(st.booleans()):
        allowed = online
    places = [each & online for each in (*l3, *(n.cpus for n in numa), online) if each & online]
    count = draw(st.integers(1, 64) if draw(st.booleans()) else st.integers(1, 8))
    devices = tuple(_device(i, draw(st.sampled_from([None, *places]))) for i in range(count))
    visible = draw(st.permutations(range(count)))[: draw(st.integers(1, count))]
    node = Node(
        cpus_allowed=allowed,
        cpus_online=online,
        cores=tuple(sorted((core & online for core in cores if core & online), key=min)),
        l3=tuple(sorted((group & online for group in l3 if group & online), key=min)),
        packages=(online,),
        numa=numa,
        memory_nodes=frozenset(each.id for each in numa),
        devices=devices,
    )
    return Situation(node, tuple(visible))


@st.composite
def hybrids(draw: DrawFn) -> Node:
    """Any machine with cores of up to three kinds."""
    node = draw(situations()).node
    speed = {core: draw(st.integers(0, 2)) for core in node.cores}
    kinds = (frozenset().union(*(c for c in node.cores if speed[c] == s)) for s in range(3))
    return node._replace(kinds=tuple(Kind(f"kind {i}", cpus) for i, cpus in enumerate(kinds)))


def _cores(draw: DrawFn) -> tuple[list[CpuSet], list[list[CpuSet]]]:
    """L3 groups, and the cores of each; CPU numbers are dealt out at random."""
    shape = draw(
        st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=9), min_size=1, max_size=8)
    )
    total = sum(sum(group) for group in shape)
    numbers = draw(st.permutations(range(total))) if draw(st.booleans()) else list(range(total))
    rest = iter(numbers)
    cores_of = [
        [frozenset(next(rest) for _ in range(threads)) for threads in group] for group in shape
    ]
    return [frozenset().union(*group) for group in cores_of], cores_of


def _numa(draw: DrawFn, l3: list[CpuSet]) -> tuple[Numa, ...]:
    """L3 groups gathered into NUMA nodes with ids that need not be consecutive."""
    ids = sorted(draw(st.frozensets(st.integers(0, 255), min_size=1, max_size=len(l3))))
    members: dict[int, CpuSet] = dict.fromkeys(ids, frozenset())
    for group in l3:
        home = draw(st.sampled_from(ids))
        members[home] |= group
    far = st.sampled_from([12, 20, 32])
    rows = {id: tuple((to, 10 if to == id else draw(far)) for to in ids) for id in ids}
    return tuple(
        Numa(id, cpus, 1 << 30, rows[id], "cpu" if cpus else "memory")
        for id, cpus in members.items()
    )


def _device(number: int, local: CpuSet | None) -> Device:
    address = f"0000:{number:02x}:00.0"
    return Device(number, address, "nvidia", ordinal=number, local_cpus=local, minor=number)

"""Find the cores that ranks may use, and divide them into a share for each claim.

Cores are ordered by NUMA node, L3 group and CPU, so that a run of them is a run of neighbours, and
a cut between two runs is best where the NUMA node or the L3 group ends.

Equal claims form a group, and the group's cores are divided among them. Claims of different groups
may overlap (one device next to an L3 group, another next to the NUMA node around it): then a core
that several groups claim goes to the group with the fewest cores per rank, and guests get cores as
near to their devices as possible. So the smallest share is as large as possible, then the next, and
shares are disjoint whenever that is possible at all.

Shares of a group differ by one core at most. Where they cannot all be equal, the larger ones are
placed so that as many cuts as possible fall between two L3 groups, best between two NUMA nodes:
7 + 8 cores for two ranks are cut after the 7th, and never through the middle of a group. Where
cores differ in speed, each share has as many of each kind, give or take one. Where several groups
claim the same cores, each group gets fast and slow ones too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spawnlaunch.base import cpuset, records
from spawnlaunch.cli import values
from spawnlaunch.node import hardware

APART = -1  # for a core with an unknown NUMA node or L3 group


class Core(records.NamedTuple):
    """A physical core, with the hardware threads that ranks may use."""

    cpus: cpuset.CpuSet  # its usable hardware threads, at least one
    numa: int  # NUMA node, or APART
    l3: int  # position in Node.l3, or APART
    kind: int = 0  # position in Node.kinds: the faster come first


def widened(node: hardware.Node) -> tuple[hardware.Node, list[str]]:
    """Replace the node's mask by its control group's cpuset; return lines on why that failed.

    Only where that cpuset is smaller than the machine. Without one, nothing separates this job's
    CPUs from those of another job on the node, and the mask stays.
    """
    group = node.cpus_cgroup
    if group and group < node.cpus_online:
        return node._replace(cpus_allowed=group | node.cpus_allowed), []
    return node, [
        "--widen: the control group's cpuset is not smaller than this machine, so nothing tells "
        "which CPUs are ours: the mask stays"
    ]


def usable_cores(
    node: hardware.Node, policy: values.Policy, by_l3: bool, warnings: list[str]
) -> tuple[Core, ...]:
    """The cores of the allowed CPUs, without reserved CPUs, and with SMT off one thread each.

    With `by_l3` the cores have their L3 groups.
    """
    node = node._replace(cpus_allowed=node.cpus_to_share)
    reserved = _reserved(node, policy.reserve, warnings) if policy.reserve else cpuset.EMPTY
    usable = node.cpus_allowed - reserved
    numa = {cpu: each.id for each in node.numa for cpu in each.cpus}
    l3 = {cpu: i for i, group in enumerate(node.l3) for cpu in group} if by_l3 else {}
    kinds = {cpu: i for i, kind in enumerate(node.kinds) for cpu in kind.cpus}
    placed = []
    for siblings in node.cores:
        threads = usable.intersection(siblings)
        if threads:
            first = min(threads)
            used = threads if policy.smt else frozenset({first})
            place = (numa.get(first, APART), l3.get(first, APART))
            placed.append((*place, first, used, kinds.get(first, 0)))
    # Each core has another first CPU, so the sort compares no sets.
    return tuple(Core(cpus, home, group, kind) for home, group, _, cpus, kind in sorted(placed))


def cpus_of(cores: Iterable[Core]) -> cpuset.CpuSet:
    """All CPUs of these cores."""
    return cpuset.EMPTY.union(*(core.cpus for core in cores))


def _reserved(
    node: hardware.Node, wanted: cpuset.CpuSet | str, warnings: list[str]
) -> cpuset.CpuSet:
    """The CPUs that no rank gets; `wanted` is as in Policy."""
    reserved = wanted
    if isinstance(reserved, str):
        if not node.l3:
            warnings.append("L3 groups are not known here: no core is reserved for them")
        # The first core of an L3 group by the hardware, allowed or not: so where a site already
        # reserves that core for the system, no second one is lost. A group of one core keeps it.
        groups = ([core for core in node.cores if core & group] for group in node.l3)
        reserved = cpuset.EMPTY.union(*(cores[0] for cores in groups if len(cores) > 1))
    if node.cpus_allowed and node.cpus_allowed <= reserved:
        warnings.append(
            f"the reserved CPUs {cpuset.format(reserved & node.cpus_allowed)} are all that is "
            "allowed: none is kept free"
        )
        return cpuset.EMPTY
    return reserved


def count_cores(node: hardware.Node, cpus: Iterable[int]) -> int:
    """The number of physical cores with a hardware thread among these CPUs."""
    return sum(1 for core in node.cores if not core.isdisjoint(cpus))


# The division

# The costs of a cut. Cuts between NUMA nodes or L3 groups are good, any other splits a cache.
_BETWEEN_NUMA, _BETWEEN_L3, _WITHIN_L3 = 0, 1, 3


class Claim(records.NamedTuple):
    """The cores that a rank may get; ranks with equal claims get equal parts of them."""

    cpus: cpuset.CpuSet  # some of the usable CPUs
    # From a guest's device to NUMA nodes, which it uses in the order of distance; empty for other
    # ranks, and where all distances are equal.
    distances: tuple[tuple[int, int], ...] = ()
    is_last: bool = False  # gets its first core after the ranks that are next to their device


class Share(records.NamedTuple):
    """The cores that a claim got."""

    cpus: cpuset.CpuSet
    cores: tuple[Core, ...]
    is_exclusive: bool  # False: there are fewer cores than claims, and some have the same


class _Cell(records.NamedTuple):
    """Cores of one NUMA node that the same groups claim; `given[g]` of them go to group g."""

    cores: list[int]  # positions among all cores
    granted: dict[int, int]  # of each group that claims them
    costs: dict[int, int]  # of each such group: how far the NUMA node is from its devices

    def free(self) -> int:
        return len(self.cores) - sum(self.granted.values())


def share_out(
    claimed: Sequence[Claim], cores: Sequence[Core], cap: int | None = None
) -> list[Share]:
    """Divide the cores into a share for each claim, in the order of the claims.

    Each claim must have a CPU of at least one core. `cap` is the largest number of cores of a
    share.
    """
    groups: dict[Claim, list[int]] = {}
    for i, claim in enumerate(claimed):
        groups.setdefault(claim, []).append(i)
    owned = _owned(list(groups), [len(members) for members in groups.values()], cores)
    result: dict[int, Share] = {}
    for (claim, members), mine in zip(groups.items(), owned, strict=True):
        is_exclusive = len(mine) >= len(members)
        divided = [cores[i] for i in mine] or [core for core in cores if core.cpus & claim.cpus]
        for i, part in zip(members, divide(divided, len(members), cap), strict=True):
            within = tuple(core._replace(cpus=core.cpus & claim.cpus) for core in part)
            result[i] = Share(cpus_of(within), within, is_exclusive)
    return [result[i] for i in range(len(claimed))]


def _owned(groups: Sequence[Claim], need: Sequence[int], cores: Sequence[Core]) -> list[list[int]]:
    """The positions of the cores of each group, in order; group g has `need[g]` ranks."""
    by_place: dict[tuple[tuple[int, ...], int], list[int]] = {}
    for i, core in enumerate(cores):
        by = tuple(g for g, claim in enumerate(groups) if not core.cpus.isdisjoint(claim.cpus))
        by_place.setdefault((by, core.numa), []).append(i)
    far = [dict(claim.distances) for claim in groups]
    cells = [
        _Cell(members, dict.fromkeys(by, 0), {g: far[g].get(numa, 0) for g in by})
        for (by, numa), members in by_place.items()
        if by
    ]
    have = [0] * len(need)
    for cell in cells:
        if len(cell.granted) == 1:
            (g,) = cell.granted
            cell.granted[g] = len(cell.cores)
            have[g] += len(cell.cores)
    if contested := [cell for cell in cells if len(cell.granted) > 1]:
        _settle(contested, groups, have, need)
    return _hand_out(cells, need, cores)


def _hand_out(
    cells: Sequence[_Cell], need: Sequence[int], cores: Sequence[Core]
) -> list[list[int]]:
    """The positions of the cores of each group; cores of each kind are divided about equally."""
    owned: list[list[int]] = [[] for _ in need]
    of_kind: dict[tuple[int, int], int] = {}  # by kind and group
    for cell in sorted(cells, key=lambda cell: len(cell.granted)):
        rest = dict(cell.granted)
        for kind in sorted({cores[i].kind for i in cell.cores}):
            mine = [i for i in cell.cores if cores[i].kind == kind]
            takers = []
            for _ in mine:
                waiting = [(of_kind.get((kind, g), 0) / need[g], g) for g in rest if rest[g]]
                taker = min(waiting)[1]
                of_kind[kind, taker] = of_kind.get((kind, taker), 0) + 1
                rest[taker] -= 1
                takers.append(taker)
            for i, taker in zip(mine, sorted(takers), strict=True):
                owned[taker].append(i)
    return [sorted(positions) for positions in owned]


def _settle(
    contested: Sequence[_Cell], groups: Sequence[Claim], have: list[int], need: Sequence[int]
) -> None:
    """Divide the cells that several groups claim: each core goes to the poorest possible group."""

    def wealth(g: int) -> tuple[bool, bool, float, int]:
        has_enough = have[g] >= need[g]
        return has_enough, groups[g].is_last and not has_enough, have[g] / need[g], g

    waiting = {g for cell in contested for g in cell.granted}
    while waiting:
        poorest = min(waiting, key=wealth)
        if _take(poorest, contested):
            have[poorest] += 1
        else:
            waiting.remove(poorest)


def _take(group: int, cells: Sequence[_Cell]) -> bool:
    """Give the group one more core, if necessary by moving cores of other groups to other cells.

    It chooses the way that adds least to the sum of costs. This is the cheapest augmenting path of
    a flow: so it finds a core whenever there is one, and the sum is always the least possible.
    """
    price = {group: 0}  # the cost of one more core for a group
    giver: dict[int, tuple[int, _Cell]] = {}  # the group that takes a core of it, and where
    changed = [group]
    while changed:
        taker = changed.pop(0)
        for cell in cells:
            for other in cell.granted if taker in cell.granted else ():
                cost = price[taker] + cell.costs[taker] - cell.costs[other]
                if cell.granted[other] and cost < price.get(other, cost + 1):
                    price[other], giver[other] = cost, (taker, cell)
                    changed.append(other)
    ends = [
        (price[g] + cell.costs[g], g, i)
        for i, cell in enumerate(cells)
        for g in price.keys() & cell.granted.keys()
        if cell.free()
    ]
    if not ends:
        return False
    _, taker, i = min(ends)
    cells[i].granted[taker] += 1
    while taker != group:
        other, (taker, cell) = taker, giver[taker]
        cell.granted[other] -= 1
        cell.granted[taker] += 1
    return True


def divide(cores: Sequence[Core], parts: int, cap: int | None = None) -> list[list[Core]]:
    """Divide the cores into parts, in order, of at most `cap` cores each.

    Where there are more parts than cores, several parts have the same core.
    """
    if parts > len(cores):
        return [list(cores[i * len(cores) // parts :][:1]) for i in range(parts)]
    if len({core.kind for core in cores}) > 1:
        return [share[:cap] for share in _of_each_kind(cores, parts)]
    price, cuts = _cuts(cores, parts)
    if price:
        # Groups of different sizes, as under a cpuset, may fit better with the largest first.
        size: dict[tuple[int, int], int] = {}
        for core in cores:
            size[core.numa, core.l3] = size.get((core.numa, core.l3), 0) + 1
        by_size = sorted(cores, key=lambda core: -size[core.numa, core.l3])
        other_price, other_cuts = _cuts(by_size, parts)
        if other_price < price:
            cores, cuts = by_size, other_cuts
    shares = list(zip([0, *cuts], [*cuts, len(cores)], strict=True))
    if cap is not None:
        shares = _capped(cores, shares, cap)
    return [list(cores[start:stop]) for start, stop in shares]


def _of_each_kind(cores: Sequence[Core], parts: int) -> list[list[Core]]:
    """Divide the cores into parts that differ by one at most, in each kind and in all; fast first.

    The larger parts of a kind are dealt in turn, from where those of the kind before ended.
    """
    shares: list[list[Core]] = [[] for _ in range(parts)]
    dealt = 0
    for kind in sorted({core.kind for core in cores}):
        mine = [core for core in cores if core.kind == kind]
        base, larger = divmod(len(mine), parts)
        rest = iter(mine)
        for i, share in enumerate(shares):
            share += [next(rest) for _ in range(base + ((i - dealt) % parts < larger))]
        dealt += larger
    return shares


def _cuts(cores: Sequence[Core], parts: int) -> tuple[int, list[int]]:
    """The total cost and positions of the cheapest cuts into shares that differ by one at most.

    After share i, x of the larger shares have been dealt, so the cut is at i * base + x. Walking
    over i with the best cost for each x finds the cheapest way; among equals, large shares first.
    """
    base, larger = divmod(len(cores), parts)
    # The cuts are stored as negative numbers: so the smallest list has the latest cuts.
    best: dict[int, tuple[int, list[int]]] = {0: (0, [])}
    for i in range(1, parts):
        step: dict[int, tuple[int, list[int]]] = {}
        for x in range(max(0, larger - (parts - i)), min(i, larger) + 1):
            price, cuts = min(best[y] for y in (x - 1, x) if y in best)
            at = i * base + x
            step[x] = (price + _price(cores, at), [*cuts, -at])
        best = step
    price, cuts = min(best.values())
    return price, [-cut for cut in cuts]


def _price(cores: Sequence[Core], at: int) -> int:
    before, after = cores[at - 1], cores[at]
    if before.numa != after.numa:
        return _BETWEEN_NUMA
    return _WITHIN_L3 if before.l3 == after.l3 else _BETWEEN_L3


def _capped(
    cores: Sequence[Core], shares: list[tuple[int, int]], cap: int
) -> list[tuple[int, int]]:
    """Cut shares to at most `cap` cores, packed within L3 groups, not reaching into the next."""
    capped = []
    free = 0  # the first core that no share has yet
    for start, stop in shares:
        while start > free and _price(cores, start) == _WITHIN_L3:
            start -= 1
        free = min(start + cap, stop)
        capped.append((start, free))
    return capped

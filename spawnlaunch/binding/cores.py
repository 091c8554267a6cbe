"""The cores that ranks may use, and the share of them that each claim gets.

Cores are ordered by NUMA node, L3 group and CPU, so that a run of them is a run of neighbours, and
a cut between two runs is best where the NUMA node or the L3 group ends.

Claims to the same CPUs form a group, and the group's cores are divided among them. Different sets
may overlap (one device next to an L3 group, another next to the NUMA node around it): then cores
that several groups could have go first to those that lack enough for one core each, then to the
poorest. So shares are disjoint whenever that is possible at all.

Shares differ by one core at most. Where they cannot all be equal, the larger ones are placed so
that as many cuts as possible fall between two L3 groups, best between two NUMA nodes: 7 + 8 cores
for two ranks are cut after the 7th, and never through the middle of a group.
"""

from __future__ import annotations

from spawnlaunch import cpuset, records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from spawnlaunch import values
    from spawnlaunch.node import hardware

APART = -1  # the NUMA node or L3 group of a core for which none is known


class Core(records.NamedTuple):
    """A physical core, as far as ranks may use it."""

    cpus: cpuset.CpuSet  # its hardware threads that may be used, never none
    numa: int  # NUMA node, or APART
    l3: int  # position in Node.l3, or APART


def widened(node: hardware.Node) -> tuple[hardware.Node, list[str]]:
    """The node with the mask left for its control group's cpuset, and why that cannot be.

    Only where that cpuset is smaller than the machine. Without one, nothing tells our CPUs from
    those of another job on this node, and the mask stays.
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
    """What the allowed CPUs leave after reserved CPUs, and with SMT off after second threads.

    With `by_l3` the cores know their L3 groups.
    """
    reserved = _reserved(node, policy.reserve, warnings) if policy.reserve else cpuset.EMPTY
    usable = node.cpus_allowed - reserved
    numa = {cpu: each.id for each in node.numa for cpu in each.cpus}
    l3 = {cpu: i for i, group in enumerate(node.l3) for cpu in group} if by_l3 else {}
    found = []
    for siblings in node.cores:
        threads = usable.intersection(siblings)
        if threads:
            first = min(threads)
            kept = threads if policy.smt else frozenset({first})
            place = (numa.get(first, APART), l3.get(first, APART))
            found.append((*place, first, kept))
    # No two have the same first CPU, so no sets are compared.
    return tuple(Core(cpus, home, group) for home, group, _, cpus in sorted(found))


def _reserved(
    node: hardware.Node, asked: cpuset.CpuSet | str, warnings: list[str]
) -> cpuset.CpuSet:
    """The CPUs that no rank gets; `asked` is as in Policy."""
    reserved = asked
    if isinstance(reserved, str):
        if not node.l3:
            warnings.append("L3 groups are not known here: no core is reserved for them")
        reserved = cpuset.EMPTY.union(*(_first_core(node, group) for group in node.l3))
    if node.cpus_allowed and node.cpus_allowed <= reserved:
        warnings.append(
            f"the reserved CPUs {cpuset.format(reserved & node.cpus_allowed)} are all that is "
            "allowed: none is kept free"
        )
        return cpuset.EMPTY
    return reserved


def _first_core(node: hardware.Node, group: cpuset.CpuSet) -> cpuset.CpuSet:
    """The first core of an L3 group by the hardware, whether or not it is allowed.

    So where a site keeps that core for the system already, no second one is lost. A group of one
    core keeps it.
    """
    cores = [core for core in node.cores if core & group]
    return cores[0] if len(cores) > 1 else cpuset.EMPTY


def count_cores(node: hardware.Node, cpus: Iterable[int]) -> int:
    """How many physical cores have a hardware thread among these CPUs."""
    return sum(1 for core in node.cores if not core.isdisjoint(cpus))


# The division

# What a cut costs. Cuts between NUMA nodes or L3 groups are good, any other splits a cache.
_BETWEEN_NUMA, _BETWEEN_L3, _WITHIN_L3 = 0, 1, 3


class Share(records.NamedTuple):
    """What a claim got."""

    cpus: cpuset.CpuSet
    cores: tuple[Core, ...]
    alone: bool  # False: there are fewer cores than claims, and some have the same


class _Atom(records.NamedTuple):
    """Cores that the same groups claim; `given[g]` of them go to group g."""

    cores: list[int]  # positions among all cores
    groups: tuple[int, ...]
    given: dict[int, int]

    def free(self) -> int:
        return len(self.cores) - sum(self.given.values())


def share_out(
    claims: Sequence[cpuset.CpuSet], cores: Sequence[Core], cap: int | None = None
) -> list[Share]:
    """The share of each claim, in the order of the claims. A claim has a CPU of some core.

    `cap` is the largest number of cores for a share.
    """
    groups: dict[cpuset.CpuSet, list[int]] = {}
    for i, claim in enumerate(claims):
        groups.setdefault(claim, []).append(i)
    owned = _owned(list(groups), [len(members) for members in groups.values()], cores)
    result: dict[int, Share] = {}
    for (claim, members), mine in zip(groups.items(), owned, strict=True):
        alone = len(mine) >= len(members)
        divided = [cores[i] for i in mine] or [core for core in cores if core.cpus & claim]
        for i, part in zip(members, divide(divided, len(members), cap), strict=True):
            within = [core._replace(cpus=core.cpus & claim) for core in part]
            cpus = cpuset.EMPTY.union(*(core.cpus for core in within))
            result[i] = Share(cpus, tuple(within), alone)
    return [result[i] for i in range(len(claims))]


def _owned(
    groups: Sequence[cpuset.CpuSet], need: Sequence[int], cores: Sequence[Core]
) -> list[list[int]]:
    """The positions of the cores of each group, in order."""
    by_groups: dict[tuple[int, ...], list[int]] = {}
    for i, core in enumerate(cores):
        claimed_by = tuple(g for g, cpus in enumerate(groups) if not core.cpus.isdisjoint(cpus))
        by_groups.setdefault(claimed_by, []).append(i)
    by_groups.pop((), None)
    atoms = [
        _Atom(members, by, {by[0]: len(members)} if len(by) == 1 else {})
        for by, members in by_groups.items()
    ]
    if max(map(len, by_groups), default=0) > 1:
        _settle(atoms, need)
    owned: list[list[int]] = [[] for _ in need]
    for atom in atoms:
        rest = iter(atom.cores)
        for g in atom.groups:
            owned[g] += [next(rest) for _ in range(atom.given.get(g, 0))]
    return [sorted(positions) for positions in owned]


def _settle(atoms: Sequence[_Atom], need: Sequence[int]) -> None:
    """Give away the cores that several groups claim: first by need, then to the poorest."""
    contested = sorted((a for a in atoms if len(a.groups) > 1), key=lambda a: len(a.groups))
    have = [sum(atom.given.get(g, 0) for atom in atoms) for g in range(len(need))]
    for g, needed in enumerate(need):
        while have[g] < needed and _take(g, contested, set()):
            have[g] += 1
    for atom in contested:
        for _ in range(atom.free()):
            poorest = min(atom.groups, key=lambda g: (have[g] / need[g], g))
            atom.given[poorest] = atom.given.get(poorest, 0) + 1
            have[poorest] += 1


def _take(group: int, atoms: Sequence[_Atom], seen: set[int]) -> bool:
    """Give the group one more core, if need be by moving another group's to another atom.

    This is an augmenting path of bipartite matching, so a core for each claim is found whenever
    there is one.
    """
    for i, atom in enumerate(atoms):
        if i in seen or group not in atom.groups:
            continue
        seen.add(i)
        if atom.free() == 0:
            holders = [g for g, given in atom.given.items() if given and g != group]
            mover = next((g for g in holders if _take(g, atoms, seen)), None)
            if mover is None:
                continue
            atom.given[mover] -= 1
        atom.given[group] = atom.given.get(group, 0) + 1
        return True
    return False


def divide(cores: Sequence[Core], parts: int, cap: int | None = None) -> list[list[Core]]:
    """Shares of the cores, in order; each has at most `cap`. More parts than cores share cores."""
    if parts > len(cores):
        return [list(cores[i * len(cores) // parts :][:1]) for i in range(parts)]
    price, cuts = _cuts(cores, parts)
    if price:
        # Groups of unequal size, as after a cpuset, may fit better with the largest first.
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


def _cuts(cores: Sequence[Core], parts: int) -> tuple[int, list[int]]:
    """Total cost and positions of the cheapest cuts into shares that differ by one at most.

    After share i, x of the larger shares have been dealt, so the cut is at i * base + x. Walking
    over i with the best cost for each x finds the cheapest way; among equals, large shares first.
    """
    base, larger = divmod(len(cores), parts)
    # The cuts are negative: the last is least.
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
    left, right = cores[at - 1], cores[at]
    if left.numa != right.numa:
        return _BETWEEN_NUMA
    return _WITHIN_L3 if left.l3 == right.l3 else _BETWEEN_L3


def _capped(
    cores: Sequence[Core], shares: list[tuple[int, int]], cap: int
) -> list[tuple[int, int]]:
    """Shares of at most `cap` cores: packed within an L3 group, not reaching into the next one."""
    capped = []
    free = 0  # the first core that no share has yet
    for start, stop in shares:
        while start > free and _price(cores, start) == _WITHIN_L3:
            start -= 1
        free = min(start + cap, stop)
        capped.append((start, free))
    return capped

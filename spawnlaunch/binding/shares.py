"""What each claim gets: shares of whole cores that do not overlap, and how a run of cores is cut.

Claims to the same CPUs form a group, and the group's cores are divided among them. Different sets
may overlap (one device next to an L3 group, another next to the NUMA node around it): then cores
that several groups could have go first to those that lack enough for one core each, then to the
poorest. So shares are disjoint whenever that is possible at all.

Shares differ by one core at most. Where they cannot all be equal, the larger ones are placed so
that as many cuts as possible fall between two L3 groups, best between two NUMA nodes: 7 + 8 cores
for two ranks are cut after the 7th, and never through the middle of a group.
"""

from __future__ import annotations

from spawnlaunch.binding.cores import Core
from spawnlaunch.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from spawnlaunch.cpuset import CpuSet

# What a cut costs. Cuts between NUMA nodes or L3 groups are good, any other splits a cache.
_BETWEEN_NUMA, _BETWEEN_L3, _WITHIN_L3 = 0, 1, 3


class Share(NamedTuple):
    """What a claim got."""

    cores: tuple[Core, ...]
    alone: bool  # False: there are fewer cores than claims, and some have the same


class _Atom(NamedTuple):
    """Cores that the same groups claim; `given[g]` of them go to group g."""

    cores: list[int]  # positions among all cores
    groups: tuple[int, ...]
    given: dict[int, int]

    def free(self) -> int:
        return len(self.cores) - sum(self.given.values())


def share_out(
    claims: Sequence[CpuSet], cores: Sequence[Core], cap: int | None = None
) -> list[Share]:
    """The share of each claim, in the order of the claims. A claim has a CPU of some core.

    `cap` is the largest number of cores for a share.
    """
    groups: dict[CpuSet, list[int]] = {}
    for i, claim in enumerate(claims):
        groups.setdefault(claim, []).append(i)
    owned = _owned(list(groups), [len(members) for members in groups.values()], cores)
    result: dict[int, Share] = {}
    for (claim, members), mine in zip(groups.items(), owned, strict=True):
        alone = len(mine) >= len(members)
        divided = [cores[i] for i in mine] or [core for core in cores if core.cpus & claim]
        for i, part in zip(members, divide(divided, len(members), cap), strict=True):
            result[i] = Share(tuple(_within(core, claim) for core in part), alone)
    return [result[i] for i in range(len(claims))]


def _within(core: Core, claim: CpuSet) -> Core:
    return core if core.cpus <= claim else core._replace(cpus=core.cpus & claim)


def _owned(groups: Sequence[CpuSet], need: Sequence[int], cores: Sequence[Core]) -> list[list[int]]:
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
    owned: list[list[int]] = [[] for _ in need]
    for atom in atoms:
        rest = iter(atom.cores)
        for g in atom.groups:
            owned[g] += [next(rest) for _ in range(atom.given.get(g, 0))]
    return [sorted(positions) for positions in owned]


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
    ordered, cuts = _best(cores, parts)
    shares = list(zip([0, *cuts], [*cuts, len(ordered)], strict=True))
    if cap is not None:
        shares = _capped(ordered, shares, cap)
    return [list(ordered[start:stop]) for start, stop in shares]


def _best(cores: Sequence[Core], parts: int) -> tuple[Sequence[Core], list[int]]:
    """The order of cores and the cuts that split the fewest L3 groups."""
    price, cuts = _cuts(cores, parts)
    if price <= (parts - 1) * _BETWEEN_L3:
        return cores, cuts
    # Groups of unequal size, as after a cpuset, may fit better with the largest first.
    by_size = _largest_first(cores)
    other_price, other_cuts = _cuts(by_size, parts)
    return (by_size, other_cuts) if other_price < price else (cores, cuts)


def _largest_first(cores: Sequence[Core]) -> Sequence[Core]:
    size: dict[tuple[int, int], int] = {}
    for core in cores:
        size[core.numa, core.l3] = size.get((core.numa, core.l3), 0) + 1
    return sorted(cores, key=lambda core: -size[core.numa, core.l3])


def _cuts(cores: Sequence[Core], parts: int) -> tuple[int, list[int]]:
    """Total cost and positions of the cheapest cuts into shares that differ by one at most.

    After share i, x of the larger shares have been dealt, so the cut is at i * base + x. Walking
    over i with the best cost for each x finds the cheapest way; among equals, large shares first.
    """
    base, larger = divmod(len(cores), parts)
    best: dict[int, tuple[int, list[int]]] = {0: (0, [])}
    for i in range(1, parts):
        step: dict[int, tuple[int, list[int]]] = {}
        for x in range(max(0, larger - (parts - i)), min(i, larger) + 1):
            before = [best[y] for y in (x - 1, x) if y in best]
            price, cuts = min(before, key=lambda way: way[0])
            at = i * base + x
            step[x] = (price + _price(cores, at), [*cuts, at])
        best = step
    price, cuts = min(best.values(), key=lambda way: (way[0], [-cut for cut in way[1]]))
    return price, cuts


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

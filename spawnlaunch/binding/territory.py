"""Who owns which cores: claims to sets of CPUs, turned into shares that do not overlap.

Claims to the same CPUs form a group, and the group's cores are divided among them. Different sets
may overlap (one device next to an L3 group, another next to the NUMA node around it): then cores
that several groups could have go first to those that lack enough for one core each, then to the
poorest. So shares are disjoint whenever that is possible at all.
"""

from __future__ import annotations

from spawnlaunch.binding.divide import divide
from spawnlaunch.binding.ground import Core
from spawnlaunch.cpuset import CpuSet
from spawnlaunch.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class Share(NamedTuple):
    """What a claim got."""

    cores: tuple[Core, ...]
    alone: bool  # False: there are fewer cores than claims, and some have the same


class _Atom(NamedTuple):
    """Cores that the same groups claim; `given[g]` of them go to group g."""

    cores: list[Core]
    groups: tuple[int, ...]
    given: dict[int, int]

    def free(self) -> int:
        return len(self.cores) - sum(self.given.values())


def shares(claims: Sequence[CpuSet], cores: Sequence[Core], cap: int | None = None) -> list[Share]:
    """The share of each claim, in the order of the claims. A claim has a CPU of some core.

    `cap` is the largest number of cores for a share.
    """
    groups: dict[CpuSet, list[int]] = {}
    for i, claim in enumerate(claims):
        groups.setdefault(claim, []).append(i)
    need = [len(members) for members in groups.values()]
    owned = _owned(_atoms(list(groups), cores), need)
    result: dict[int, Share] = {}
    for (claim, members), mine in zip(groups.items(), owned, strict=True):
        alone = len(mine) >= len(members)
        ground = mine or [core for core in cores if core.cpus & claim]
        for i, part in zip(members, divide(ground, len(members), cap), strict=True):
            within = (core._replace(cpus=core.cpus & claim) for core in part)
            result[i] = Share(tuple(within), alone)
    return [result[i] for i in range(len(claims))]


def _atoms(groups: Sequence[CpuSet], cores: Sequence[Core]) -> list[_Atom]:
    by_groups: dict[tuple[int, ...], list[Core]] = {}
    for core in cores:
        claimed_by = tuple(g for g, cpus in enumerate(groups) if not core.cpus.isdisjoint(cpus))
        if claimed_by:
            by_groups.setdefault(claimed_by, []).append(core)
    return [_Atom(members, claimed_by, {}) for claimed_by, members in by_groups.items()]


def _owned(atoms: Sequence[_Atom], need: Sequence[int]) -> list[list[Core]]:
    """The cores of each group, in order."""
    for atom in atoms:
        if len(atom.groups) == 1:
            atom.given[atom.groups[0]] = len(atom.cores)
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
    return _dealt(atoms, len(need))


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


def _dealt(atoms: Sequence[_Atom], groups: int) -> list[list[Core]]:
    owned: list[list[Core]] = [[] for _ in range(groups)]
    for atom in atoms:
        start = 0
        for g in atom.groups:
            stop = start + atom.given.get(g, 0)
            owned[g].extend(atom.cores[start:stop])
            start = stop
    for cores in owned:
        cores.sort(key=lambda core: (core.numa, core.l3, min(core.cpus)))
    return owned

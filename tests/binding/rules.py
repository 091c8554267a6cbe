"""The rules that every plan must meet, whoever made it: checked on CPU sets, not on a Plan.

(a) A rank's CPUs are some of those next to its device where any of them is allowed; otherwise the
    plan warns and stays inside what is allowed.
(b) Ranks that may use the same CPUs do not overlap, unless there are fewer cores than ranks.
(c) Their numbers of cores differ by one at most, and no core's threads are split between ranks.
(d) Rank r uses the r-th visible device.
(e) Nothing outside the allowed CPUs is used.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple


class Placed(NamedTuple):
    """What a plan says of one rank."""

    rank: int
    device: int | None
    cpus: frozenset[int]


class Expected(NamedTuple):
    """What a scenario says of one rank."""

    device: int | None
    near: frozenset[int]  # allowed CPUs next to the device; empty: there are none


class Group(NamedTuple):
    """Ranks that divide the same CPUs."""

    ranks: Sequence[int]
    cores: int
    min_cores_per_rank: int


def violations(
    placed: Sequence[Placed],
    expected: Sequence[Expected],
    groups: Sequence[Group],
    allowed: frozenset[int],
    cores: Sequence[frozenset[int]],
    warned: bool,
) -> list[str]:
    """Every broken rule, as a line; none for a good plan."""
    found = []
    for place, want in zip(placed, expected, strict=True):
        found += _place(place, want, allowed, warned)
    by_rank = {place.rank: place.cpus for place in placed}
    for group in groups:
        found += _group(group, by_rank, cores)
    found += _split_cores(placed, groups, allowed, cores)
    return found


def _place(place: Placed, want: Expected, allowed: frozenset[int], warned: bool) -> list[str]:
    found = []
    if place.device != want.device:
        found.append(f"d: rank {place.rank} has device {place.device}, not {want.device}")
    if not place.cpus or not place.cpus <= allowed:
        found.append(f"e: rank {place.rank} has {sorted(place.cpus)} outside the allowed")
    if want.near and not place.cpus <= want.near:
        found.append(f"a: rank {place.rank} has {sorted(place.cpus - want.near)} not next to it")
    if not want.near and not warned:
        found.append(f"a: rank {place.rank} has no CPU next to its device and nothing is said")
    return found


def _group(
    group: Group, by_rank: dict[int, frozenset[int]], cores: Sequence[frozenset[int]]
) -> list[str]:
    found = []
    counts = {rank: _count(by_rank[rank], cores) for rank in group.ranks}
    if group.cores >= len(group.ranks):
        for one, other in combinations(group.ranks, 2):
            if by_rank[one] & by_rank[other]:
                found.append(f"b: ranks {one} and {other} overlap")
    if max(counts.values()) - min(counts.values()) > 1:
        found.append(f"c: uneven numbers of cores {counts}")
    if min(counts.values()) < group.min_cores_per_rank:
        found.append(f"c: fewer cores than {group.min_cores_per_rank}: {counts}")
    return found


def _split_cores(
    placed: Sequence[Placed],
    groups: Sequence[Group],
    allowed: frozenset[int],
    cores: Sequence[frozenset[int]],
) -> list[str]:
    in_groups = {rank for group in groups for rank in group.ranks}
    found = []
    for core in cores:
        parts = {s.cpus & core for s in placed if s.rank in in_groups and s.cpus & core}
        if len(parts) > 1 and not any(part == core & allowed for part in parts):
            found.append(f"c: the threads of core {sorted(core)} are split: {parts}")
    return found


def _count(cpus: frozenset[int], cores: Sequence[frozenset[int]]) -> int:
    return sum(1 for core in cores if core & cpus)

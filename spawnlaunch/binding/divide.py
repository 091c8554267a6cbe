"""Dividing a run of cores into shares that differ by one core at most.

Where the shares cannot all be equal, the larger ones are placed so that as many cuts as possible
fall between two L3 groups, best between two NUMA nodes: 7 + 8 cores for two ranks are cut after the
7th, and never through the middle of a group.
"""

from __future__ import annotations

from spawnlaunch.binding.ground import Core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# What a cut costs. Cuts between NUMA nodes or L3 groups are good, any other splits a cache.
_BETWEEN_NUMA, _BETWEEN_L3, _WITHIN_L3 = 0, 1, 3


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

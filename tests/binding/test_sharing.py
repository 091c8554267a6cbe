"""Properties of the division of cores, compared with all divisions that there are."""

from collections.abc import Sequence
from itertools import combinations

from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from spawnlaunch.base.cpuset import EMPTY, CpuSet
from spawnlaunch.binding.cores import Claim, Core, count_cores, divide, share_out, usable_cores
from spawnlaunch.cli.values import FIRST_PER_L3, Policy
from tests.binding.generated import Situation, situations
from tests.support.examples import examples


@st.composite
def rows(draw: DrawFn) -> list[Core]:
    """Up to twelve cores of one or two threads in their order, in L3 groups and NUMA nodes."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    homes = sorted(draw(st.lists(st.integers(0, 1), min_size=len(sizes), max_size=len(sizes))))
    cores: list[Core] = []
    for l3, (size, numa) in enumerate(zip(sizes, homes, strict=True)):
        for _ in range(size):
            threads = {len(cores), 100 + len(cores)} if draw(st.booleans()) else {len(cores)}
            cores.append(Core(frozenset(threads), numa, l3))
    return cores


def price(cores: Sequence[Core], at: int) -> int:
    """A cut between NUMA nodes costs nothing, between L3 groups 1, within one 3."""
    left, right = cores[at - 1], cores[at]
    return 0 if left.numa != right.numa else 1 if left.l3 != right.l3 else 3


def cheapest(cores: Sequence[Core], parts: int) -> tuple[int, list[int]]:
    """Of all ways to cut into even shares the cheapest; of those one with large shares first."""
    base, larger = divmod(len(cores), parts)
    ways = []
    for large in combinations(range(parts), larger):
        cuts = [i * base + sum(share < i for share in large) for i in range(1, parts)]
        ways.append((sum(price(cores, cut) for cut in cuts), [-cut for cut in cuts]))
    cost, negative = min(ways)
    return cost, [-cut for cut in negative]


def shares_at(cores: Sequence[Core], cuts: Sequence[int]) -> list[list[Core]]:
    return [list(cores[a:b]) for a, b in zip([0, *cuts], [*cuts, len(cores)], strict=True)]


@examples(60, 200)
@given(rows(), st.data())
def test_no_division_is_cheaper(cores: list[Core], data: st.DataObject) -> None:
    parts = data.draw(st.one_of(st.integers(1, len(cores) + 1), st.just(len(cores))))
    shares = divide(cores, parts)
    if parts > len(cores):
        assert shares == [[cores[i * len(cores) // parts]] for i in range(parts)]
        return
    cost, cuts = cheapest(cores, parts)
    ordered = cores
    if cost:  # it may be better with the largest groups first
        size = {(c.numa, c.l3): sum(o[1:] == c[1:] for o in cores) for c in cores}
        by_size = sorted(cores, key=lambda core: -size[core.numa, core.l3])
        other = cheapest(by_size, parts)
        if other[0] < cost:
            ordered, cuts = by_size, other[1]
    assert shares == shares_at(ordered, cuts)


@examples(60, 200)
@given(rows(), st.integers(1, 6), st.integers(1, 4))
def test_limited_shares_lie_close_together_in_their_caches(
    cores: list[Core], parts: int, cap: int
) -> None:
    if parts > len(cores):
        return
    whole, shares = divide(cores, parts), divide(cores, parts, cap)
    ordered = [core for share in whole for core in share]
    free = 0
    for all_of_it, share in zip(whole, shares, strict=True):
        first = ordered.index(all_of_it[0])
        cache = all_of_it[0][1:]
        same_cache = [
            at for at in range(free, first) if all(c[1:] == cache for c in ordered[at:first])
        ]
        begin = min(same_cache, default=first)
        end = min(begin + cap, first + len(all_of_it))
        assert share == ordered[begin:end]
        free = end


@st.composite
def claimed(draw: DrawFn) -> tuple[list[Core], list[CpuSet]]:
    """Few cores, and claims to CPUs of them, which may overlap."""
    cores = draw(rows())[: draw(st.integers(1, 6))]
    every = sorted(frozenset().union(*(core.cpus for core in cores)))
    sets = draw(st.lists(st.frozensets(st.sampled_from(every), min_size=1), min_size=1, max_size=4))
    return cores, draw(st.lists(st.sampled_from(sets), min_size=1, max_size=7))


def can_all_have_one(cores: Sequence[Core], claims: Sequence[CpuSet]) -> bool:
    """By Hall's theorem: any of the claims together have as many cores as they are."""
    return all(
        sum(any(core.cpus & claim for claim in some) for core in cores) >= len(some)
        for count in range(1, len(claims) + 1)
        for some in combinations(claims, count)
    )


THREE = [Core(frozenset({cpu}), 0, 0) for cpu in range(3)]


@examples(60, 200)
@given(claimed())
@example(
    (THREE, [frozenset({1, 2}), frozenset({0, 2}), frozenset({1})])
)  # the first has to give way
def test_shares_are_alone_where_they_can_be_and_leave_no_core(
    situation: tuple[list[Core], list[CpuSet]],
) -> None:
    cores, claims = situation
    shares = share_out([*map(Claim, claims)], cores)
    for claim, share in zip(claims, shares, strict=True):
        assert share.cores
        assert all(core.cpus and core.cpus <= claim for core in share.cores)
    if can_all_have_one(cores, claims):
        assert all(share.is_exclusive for share in shares)
        got = [(*core[1:], min(core.cpus) % 100) for share in shares for core in share.cores]
        assert len(got) == len(set(got)) == sum(any(c.cpus & d for d in claims) for c in cores)


SIX = [Core(frozenset({cpu}), 0, 0) for cpu in range(6)]


@examples(60, 200)
@given(claimed())
@example((SIX, [frozenset(range(6)), frozenset({3, 4, 5})]))  # the second gets all of its own
def test_no_core_is_with_a_richer_group_that_a_poorer_one_could_have(
    situation: tuple[list[Core], list[CpuSet]],
) -> None:
    cores, claims = situation
    shares = share_out([*map(Claim, claims)], cores)
    if not all(share.is_exclusive for share in shares):
        return
    have = {
        claim: sum(len(s.cores) for c, s in zip(claims, shares, strict=True) if c == claim)
        for claim in claims
    }
    need = {claim: claims.count(claim) for claim in claims}
    for claim, share in zip(claims, shares, strict=True):
        for part in share.cores:
            whole = next(core for core in cores if part.cpus <= core.cpus)
            for other in set(claims) - {claim}:
                if whole.cpus & other:
                    assert (have[claim] - 1) / need[claim] <= have[other] / need[other]


@examples(60, 200)
@given(situations(), st.booleans(), st.booleans(), st.booleans())
def test_usable_cores_are_what_is_left_in_the_order_of_the_machine(
    situation: Situation, smt: bool, by_l3: bool, reserve: bool
) -> None:
    node, warnings = situation.node, list[str]()
    policy = Policy(reserve=FIRST_PER_L3 if reserve else EMPTY, smt=smt)
    cores = usable_cores(node, policy, by_l3, warnings)
    firsts = EMPTY
    for group in node.l3:
        of_group = [core for core in node.cores if core & group]
        firsts |= of_group[0] if reserve and len(of_group) > 1 else EMPTY
    left = node.cpus_allowed - firsts or node.cpus_allowed
    assert bool(warnings) == (reserve and node.cpus_allowed <= firsts)
    expected = []
    for threads in (core & left for core in node.cores):
        if threads:
            numa = [each.id for each in node.numa if min(threads) in each.cpus]
            l3 = [i for i, group in enumerate(node.l3) if by_l3 and min(threads) in group]
            kept = threads if smt else frozenset({min(threads)})
            expected.append(Core(kept, *(numa or [-1]), *(l3 or [-1])))
    expected.sort(key=lambda core: (core.numa, core.l3, min(core.cpus)))
    assert list(cores) == expected
    assert count_cores(node, left) == len(expected)

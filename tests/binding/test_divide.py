"""Dividing cores: even, and along L3 groups and NUMA nodes where that can be."""

import pytest

from spawnlaunch.binding.cores import Core, divide


def ground(*sizes: int, numa: int = 0) -> list[Core]:
    """L3 groups of these sizes, one after the other."""
    groups = [l3 for l3, size in enumerate(sizes) for _ in range(size)]
    return [Core(frozenset({cpu}), numa, l3) for cpu, l3 in enumerate(groups)]


def spans(shares: list[list[Core]]) -> list[list[int]]:
    return [[min(core.cpus) for core in share] for share in shares]


def groups_of(shares: list[list[Core]]) -> list[set[int]]:
    return [{core.l3 for core in share} for share in shares]


@pytest.mark.parametrize(
    ("sizes", "parts", "groups"),
    [
        ((8, 8), 2, [{0}, {1}]),
        ((7, 8), 2, [{0}, {1}]),
        ((8, 7), 2, [{0}, {1}]),
        ((8, 8, 8, 8), 2, [{0, 1}, {2, 3}]),
        ((8, 8), 4, [{0}, {0}, {1}, {1}]),
        ((7, 8), 4, [{0}, {0}, {1}, {1}]),
        ((4, 8, 4), 2, [{1}, {0, 2}]),
        ((3, 3, 2), 3, [{0}, {1}, {2}]),
        ((2, 3, 3), 3, [{0}, {1}, {2}]),
    ],
)
def test_cuts_follow_l3_groups(sizes: tuple[int, ...], parts: int, groups: list[set[int]]) -> None:
    shares = divide(ground(*sizes), parts)
    assert groups_of(shares) == groups


@pytest.mark.parametrize("cores", range(1, 20))
@pytest.mark.parametrize("parts", range(1, 9))
def test_shares_are_even_and_use_everything(cores: int, parts: int) -> None:
    shares = divide(ground(cores // 2, cores - cores // 2), parts)
    counts = [len(share) for share in shares]
    assert max(counts) - min(counts) <= 1
    assert min(counts) >= 1
    if cores >= parts:
        assert sorted(cpu for share in spans(shares) for cpu in share) == list(range(cores))


def test_a_numa_node_is_a_better_place_to_cut_than_an_l3_group() -> None:
    first = [Core(frozenset({cpu}), 0, cpu // 2) for cpu in range(5)]
    second = [Core(frozenset({cpu}), 1, cpu // 2) for cpu in range(5, 9)]
    assert [len(share) for share in divide(first + second, 2)] == [5, 4]


def test_a_limit_packs_shares_within_a_group_and_not_across() -> None:
    assert spans(divide(ground(9), 3, 2)) == [[0, 1], [2, 3], [4, 5]]
    assert spans(divide(ground(4, 4), 2, 2)) == [[0, 1], [4, 5]]
    assert spans(divide(ground(4, 4), 4, 1)) == [[0], [1], [4], [5]]

"""What a budget can decide, and which workloads are left out."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.bench import arms, budget, record, results, stats, workloads
from spawnlaunch.bench.budget import Cost
from tests.bench.synthetic import paired

LEVEL = stats.ERROR / 100
NAMES = (arms.UNPINNED, "packed", arms.AUTO)


def test_the_noise_is_that_of_a_difference_whatever_arms_and_rounds_are_like():
    rng, sizes, rounds = np.random.default_rng(3), (1.0, 0.5, 1.2), 400
    taken = [
        record.Taken(
            "compute", i, arm, ({"": size * (1 + i / 50) * math.exp(rng.normal(0, 0.02))},)
        )
        for i in range(rounds)
        for arm, size in zip(NAMES, sizes, strict=True)
    ]
    measured = results.Measured(workloads.NAMES["compute"], NAMES, taken, 0.0)
    assert budget.noise(measured) == pytest.approx(0.02 * math.sqrt(2), rel=0.1)
    assert budget.noise(measured._replace(taken=taken[: len(NAMES)])) == math.inf
    threes = [measured._replace(taken=taken[i : i + 9]) for i in range(0, len(taken) - 8, 9)]
    assert 0.1 < np.mean([budget.noise(three) < 0.02 * math.sqrt(2) for three in threes]) < 0.3


times = st.floats(0, 1e9)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.lists(times, max_size=4), times), min_size=1),
    st.floats(-1e6, 1e6) | st.just(math.inf),
    st.floats(1e-3, 1e9),
)
def test_whatever_the_first_rounds_were_the_lines_of_the_budget_can_be_said(
    trials: list[tuple[int, list[float], float]], left_s: float, budget_s: float
):
    costs = []
    for i, (count, rounds_s, size) in enumerate(trials):
        taken = [
            record.Taken("compute", number, arm, ({"": 1 + (number + at) * size},))
            for number in range(count)
            for at, arm in enumerate(NAMES)
        ]
        measured = results.Measured(workloads.NAMES["compute"], NAMES, taken, 0.0)
        costs.append(budget.cost(measured, rounds_s, i % 3, len(trials)))
    first, *more = budget.lines(costs, left_s, budget_s)
    assert " can show " in first
    assert "nan" not in first
    assert "inf" not in first
    assert len(more) <= 1


def test_more_rounds_see_smaller_differences_and_few_see_none():
    its = Cost("compute", 1, 1.0, 0.02, LEVEL)
    seen = [its.seen(rounds) for rounds in (5, 20, 40, 60, 80)]
    assert seen[0] == math.inf
    assert sorted(seen, reverse=True) == seen
    assert its.seen(80) < stats.DELTA < its.seen(20)
    assert its._replace(noise=0.2).seen(80) == pytest.approx(10 * its.seen(80))


def test_a_difference_that_is_said_to_be_decided_is_found_in_four_of_five_tables():
    rng, rounds, noise, tables = np.random.default_rng(0), 60, 0.03, 400
    its = Cost("compute", 1, 1.0, noise * math.sqrt(2), LEVEL)
    found = 0
    for _ in range(tables):
        one, other = np.exp(rng.normal(0, noise, (2, rounds)))
        claims = paired(list(one * (1 + its.seen(rounds))), list(other), True, LEVEL)
        found += claims.verdict == stats.BETTER
    assert 0.7 < found / tables < 0.97


def test_what_counts_most_for_its_time_is_kept_and_what_is_too_noisy_comes_last():
    train = Cost("train", 0.4, 2.0, 0.02, LEVEL)
    loader = Cost("loader", 0.2, 2.0, 0.02, LEVEL)
    compute = Cost("compute", 0.05, 0.5, 0.01, LEVEL)
    noisy = Cost("allreduce", 0.3, 0.5, 1.0, LEVEL)

    def names(left_s: float, least: int = 1) -> list[str]:
        chosen = budget.kept([compute, noisy, loader, train], left_s, least=least)
        return [each.workload for each in chosen]

    assert names(1000) == ["train", "compute", "loader", "allreduce"]
    assert names(160) == ["train", "compute"]
    needs = [each.need_s / each.round_s for each in (train, noisy)]
    assert needs == [stats.EQUAL_ROUNDS, stats.SMALL_ROUNDS]
    assert names(100) == ["compute", "allreduce"]
    slower = train._replace(round_s=1.9, weight=1.0)
    left_s = 1.9 * slower.fewest
    assert left_s < 30 * slower.round_s  # no time to find two arms equal
    assert [each.workload for each in budget.kept([slower], left_s, least=0)] == ["train"]
    assert budget.kept([slower], left_s - 0.1, least=0) == []
    assert names(1) == ["compute"]
    assert names(1, least=0) == []
    chosen = [train, compute]
    assert budget.shares_s(chosen, 200) == pytest.approx([160, 40])


def test_a_line_says_what_is_decided_what_more_time_would_and_what_is_left_out_by_which_rule():
    costs = [Cost("train", 0.7, 3.0, 0.02, LEVEL), Cost("jitter", 0.0, 3.0, 0.06, LEVEL)]
    said = list(budget.lines(costs, 240, 300))
    assert said[0].startswith("5 min can show a difference of 1.")
    assert "% or more in train; 8 min: 3." in said[0]
    assert said[0].endswith("% or more in every workload")
    assert said[1].partition("only if time is left")[2] == ": jitter"
    (said_of_all,) = budget.lines(costs, 3540, 3600)
    assert said_of_all.startswith("1 h 0 min can show")
    (short,) = budget.lines([costs[0]._replace(noise=math.inf)], 12, 20)
    assert "nothing in train: 7 rounds" in short
    (unknown,) = budget.lines([costs[0]._replace(noise=math.inf)], 200, 300)
    assert unknown.endswith("noise is not known")

"""The verdict on synthetic samples whose answer is known."""

import math

import numpy as np
import pytest

from spawnlaunch.bench import stats
from spawnlaunch.bench.stats import BETTER, EQUAL, UNDECIDED, WORSE, paired, unpaired
from tests.bench.synthetic import rounds
from tests.support.late import Late

reference = Late("scipy.stats")
RUNS = 200
ENOUGH = 14


def test_two_equal_arms_are_never_said_to_differ_more_often_than_it_says():
    found = [paired(*rounds(1.0, seed, noise=0.3), True) for seed in range(RUNS)]
    false = [one for one in found if one.verdict in (BETTER, WORSE)]
    assert len(false) <= RUNS * stats.ERROR + 3 * math.sqrt(RUNS * stats.ERROR)


def test_equal_arms_of_a_quiet_machine_are_equal_and_those_of_a_noisy_one_undecided():
    assert paired(*rounds(1.0, 0, noise=0.003, count=20), True).verdict == EQUAL
    noisy = paired(*rounds(1.0, 0, noise=0.1, count=20), True)
    assert noisy.verdict == UNDECIDED
    assert noisy.seen > stats.DELTA


@pytest.mark.parametrize("ratio", [2.0, 1.2, 0.9, 0.5])
def test_a_difference_is_found_and_its_size_lies_in_the_interval(ratio: float):
    found = [paired(*rounds(ratio, seed, noise=0.01), True) for seed in range(20)]
    assert {one.verdict for one in found} == {BETTER if ratio > 1 else WORSE}
    assert sum(one.low <= ratio <= one.high for one in found) >= 17


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    found = [paired(*rounds(1.3, seed), True, 0.05) for seed in range(RUNS)]
    assert 0.9 * RUNS <= sum(one.low <= 1.3 <= one.high for one in found) <= RUNS


def test_a_machine_that_drifts_does_not_hide_a_difference_because_rounds_are_paired():
    arm, other = rounds(1.1, seed=1, noise=0.01, drift=1.0)
    assert max(other) > 2 * min(other)
    assert paired(arm, other, True).verdict == BETTER


def test_where_less_is_better_the_ratio_is_turned_round():
    arm, other = rounds(2.0, seed=0, noise=0.01)
    more, less = paired(arm, other, True), paired(arm, other, False)
    assert (more.verdict, less.verdict) == (BETTER, WORSE)
    assert less[:5] == pytest.approx(stats.turned(more)[:5])


def test_one_outlier_neither_makes_nor_hides_a_difference():
    arm, other = rounds(1.0, seed=3, noise=0.01)
    assert paired([*arm[:-1], arm[-1] * 50], other, True).verdict in (EQUAL, UNDECIDED)
    arm, other = rounds(1.5, seed=3, noise=0.01, count=20)
    assert paired([*arm[:-1], arm[-1] / 50], other, True).verdict == BETTER


def test_too_few_rounds_tell_nothing_however_clear_they_look():
    enough = stats.fewest_rounds(stats.ERROR)
    few = paired(*rounds(2.0, 0, noise=0.01, count=enough - 1), True)
    assert (few.verdict, few.low, few.high, few.seen) == (UNDECIDED, 0, math.inf, math.inf)
    assert paired(*rounds(2.0, 0, noise=0.01, count=enough), True).verdict == BETTER


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("error", [0.05, 0.01, 0.002])
def test_the_interval_and_the_p_value_say_the_same(seed: int, error: float):
    logs = [np.random.default_rng(seed + i).normal(0.02, 0.03, ENOUGH) for i in range(5)]
    for level, one in zip(
        stats.holm([each.p for each in stats.judge(logs, error)], error),
        stats.judge(logs, error),
        strict=True,
    ):
        assert (
            (one.p <= level) == (not one.low <= 1 <= one.high) == (one.verdict in (BETTER, WORSE))
        )
        assert one.low <= one.ratio <= one.high


def test_the_level_of_a_table_is_shared_out_by_holms_steps():
    third, half = pytest.approx(0.01), pytest.approx(0.015)
    assert stats.holm([0.02, 0.001, 0.5], 0.03) == [third, third, third]
    assert stats.holm([0.014, 0.001, 0.5], 0.03) == [half, third, third]
    assert stats.holm([0.014, 0.001, 0.03], 0.03) == [half, third, 0.03]


def test_the_looks_together_have_the_error_and_the_last_one_has_what_is_left():
    assert sum(stats.error_of_look(n, False) for n in stats.LOOKS) == pytest.approx(stats.ERROR)
    for n in (5, 14, 30, 80):
        before = sum(stats.error_of_look(look, False) for look in stats.LOOKS if look < n)
        assert stats.error_of_look(n, True) + before == pytest.approx(stats.ERROR)


def test_identical_samples_are_equal():
    same = [3.0] * ENOUGH
    assert paired(same, same, True) == (1.0, 1.0, 1.0, 1.0, ENOUGH, EQUAL)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(20))
def test_the_p_value_is_that_of_the_exact_signed_rank_test(seed: int):
    values = np.random.default_rng(seed).normal(0.3, 1, 5 + seed)
    expected = reference.wilcoxon(values, method="exact").pvalue
    assert stats.compared(values, 0.05).p == pytest.approx(expected, rel=1e-9)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(10))
def test_the_p_value_of_two_sets_of_runs_is_that_of_the_exact_rank_sum_test(seed: int):
    rng = np.random.default_rng(seed)
    new, old = rng.lognormal(0.5, 1, 4 + seed % 4), rng.lognormal(0, 1, 6)
    expected = reference.mannwhitneyu(new, old, method="exact").pvalue
    found = unpaired(new.tolist(), old.tolist(), True, 0.05)
    assert found.p == pytest.approx(expected, rel=1e-9)
    assert (found.p <= 0.05) == (not found.low <= 1 <= found.high)


def test_ties_and_zeros_are_no_evidence():
    assert stats.compared(np.zeros(12), 0.05).p == 1.0
    assert stats.compared(np.array([1.0, -1.0] * 6), 0.05).p == 1.0
    # Nine equal values of one sign: each of the 2**9 signs is as likely, and two are as extreme.
    assert stats.compared(np.array([0.1] * 9 + [0.0]), 0.05).p == pytest.approx(2 / 2**9)


@pytest.mark.parametrize("bad", [[0.0], [-1.0], [float("nan")], [float("inf")], []])
def test_samples_that_are_no_measurement_are_refused(bad: list[float]):
    with pytest.raises(ValueError, match="above 0"):
        paired(bad, [1.0], True)


def test_rounds_that_are_not_pairs_are_refused():
    with pytest.raises(ValueError, match="2 rounds of one arm and 1"):
        paired([1.0, 2.0], [1.0], True)


def test_runs_are_compared_by_one_number_each_and_one_a_side_tells_nothing():
    assert stats.fewest_runs(0.05) == 4
    old, new = [1.0, 1.01, 0.99, 1.02], [1.4, 1.41, 1.39, 1.42]
    assert unpaired(new, old, True, 0.05).verdict == BETTER
    assert unpaired(new, old, False, 0.05).verdict == WORSE
    assert unpaired(new[:1], old[:1], True, 0.05).verdict == UNDECIDED


def test_several_series_count_alike_whatever_their_units():
    small, large = [1.0, 2.0], [1e6, 4e6]
    means = stats.geometric_means([small, large])
    assert means == [pytest.approx(1e3), pytest.approx(8e6**0.5)]

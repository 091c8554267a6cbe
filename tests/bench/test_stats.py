"""The verdict on synthetic samples whose answer is known."""

import numpy as np
import pytest
from scipy.stats import wilcoxon

from spawnlaunch.bench import stats
from spawnlaunch.bench.stats import FASTER, FEW, SAME, SLOWER, paired, unpaired
from tests.bench.synthetic import ROUNDS, rounds

RUNS = 200


def test_two_equal_arms_are_no_measurable_difference_in_19_of_20_runs():
    verdicts = [paired(*rounds(1.0, seed, noise=0.02), True, seed).verdict for seed in range(RUNS)]
    assert verdicts[:20].count(SAME) >= 19
    assert verdicts.count(SAME) >= RUNS * 19 / 20


def test_noise_alone_is_never_taken_for_a_difference_more_often_than_it_says():
    found = [paired(*rounds(1.0, seed, noise=0.3), True, seed) for seed in range(RUNS)]
    false = [one for one in found if one.verdict != SAME]
    assert len(false) <= RUNS * stats.CLAIM_P + 3  # three standard deviations of so rare a count
    assert sum(one.noisy for one in found) > RUNS / 2


def test_a_quiet_machine_is_not_called_noisy():
    assert not paired(*rounds(1.0, 0, noise=0.01), True, 0).noisy


@pytest.mark.parametrize("ratio", [2.0, 1.2, 0.9, 0.5])
def test_a_difference_is_found_and_its_size_lies_in_the_interval(ratio: float):
    found = [paired(*rounds(ratio, seed, noise=0.01), True, seed) for seed in range(20)]
    assert {one.verdict for one in found} == {FASTER if ratio > 1 else SLOWER}
    assert sum(one.low <= ratio <= one.high for one in found) >= 17


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    found = [paired(*rounds(1.3, seed), True, seed) for seed in range(RUNS)]
    assert 0.9 * RUNS <= sum(one.low <= 1.3 <= one.high for one in found) <= RUNS


def test_a_machine_that_drifts_does_not_hide_a_difference_because_rounds_are_paired():
    arm, other = rounds(1.1, seed=1, noise=0.01, drift=1.0)
    assert max(other) > 2 * min(other)
    assert paired(arm, other, True, 0).verdict == FASTER


def test_where_less_is_better_the_ratio_is_turned_round():
    arm, other = rounds(2.0, seed=0, noise=0.01)
    more, less = paired(arm, other, True, 0), paired(arm, other, False, 0)
    assert (more.verdict, less.verdict) == (FASTER, SLOWER)
    assert less[:5] == pytest.approx(stats.inverse(more)[:5])


def test_one_outlier_neither_makes_nor_hides_a_difference():
    arm, other = rounds(1.0, seed=3, noise=0.01)
    assert paired([*arm[:-1], arm[-1] * 50], other, True, 0).verdict == SAME
    arm, other = rounds(1.5, seed=3, noise=0.01, count=20)
    assert paired([*arm[:-1], arm[-1] / 50], other, True, 0).verdict == FASTER


def test_too_few_rounds_are_said_to_be_too_few_however_clear_they_look():
    few, enough = stats.MIN_ROUNDS - 1, stats.MIN_ROUNDS
    assert paired(*rounds(2.0, 0, noise=0.01, count=few), True, 0).verdict == FEW
    assert paired(*rounds(2.0, 0, noise=0.01, count=enough), True, 0).verdict == FASTER
    assert paired([1.01, 0.99] * (few // 2), [1.0] * few, True, 0).verdict == SAME


def test_the_same_seed_gives_the_same_interval():
    samples = rounds(1.1, seed=5)
    assert paired(*samples, True, 7) == paired(*samples, True, 7)


def test_identical_samples_differ_by_nothing():
    same = [3.0] * ROUNDS
    assert paired(same, same, True, 0) == (1.0, 1.0, 1.0, 1.0, ROUNDS, SAME)


@pytest.mark.parametrize("seed", range(20))
def test_the_p_value_is_that_of_the_exact_signed_rank_test(seed: int):
    values = np.random.default_rng(seed).normal(0.3, 1, 5 + seed)
    expected = wilcoxon(values, method="exact").pvalue
    assert stats.signed_rank_p(values) == pytest.approx(expected, rel=1e-9)


def test_ties_and_zeros_are_no_evidence():
    assert stats.signed_rank_p(np.zeros(12)) == 1.0
    assert stats.signed_rank_p(np.array([1.0, -1.0] * 6)) == 1.0
    # Nine equal values of one sign: each of the 2**9 signs is as likely, and two are as extreme.
    assert stats.signed_rank_p(np.array([0.1] * 9 + [0.0])) == pytest.approx(2 / 2**9)


@pytest.mark.parametrize("bad", [[0.0], [-1.0], [float("nan")], [float("inf")], []])
def test_samples_that_are_no_measurement_are_refused(bad: list[float]):
    with pytest.raises(ValueError, match="above 0"):
        paired(bad, [1.0], True, 0)


def test_rounds_that_are_not_pairs_are_refused():
    with pytest.raises(ValueError, match="2 rounds of one arm and 1"):
        paired([1.0, 2.0], [1.0], True, 0)


def test_two_runs_are_compared_without_pairs():
    (arm, other), (third, _) = rounds(1.0, 1, drift=0), rounds(1.5, 2, drift=0)
    assert unpaired(arm, other, True, 0).verdict == SAME
    assert unpaired(third, other, True, 0).verdict == FASTER
    assert unpaired(third, other, False, 0).verdict == SLOWER


def test_several_series_count_alike_whatever_their_units():
    small, large = [1.0, 2.0], [1e6, 4e6]
    means = stats.geometric_means([small, large])
    assert means == [pytest.approx(1e3), pytest.approx(8e6**0.5)]

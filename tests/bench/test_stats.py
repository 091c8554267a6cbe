"""The verdict on synthetic samples whose answer is known."""

import math

import numpy as np
import pytest

from spawnlaunch.bench import stats
from spawnlaunch.bench.stats import BETTER, EQUAL, UNDECIDED, WORSE
from tests.bench.synthetic import paired, rounds

ENOUGH = 40


def test_equal_arms_of_a_quiet_machine_are_equal_and_those_of_a_noisy_one_undecided():
    assert paired(*rounds(1.0, 0, noise=0.003, count=60), True).verdict == EQUAL
    assert paired(*rounds(1.0, 0, noise=0.1, count=60), True).verdict == UNDECIDED


def test_a_machine_that_drifts_does_not_hide_a_difference_because_rounds_are_paired():
    arm, other = rounds(1.1, seed=1, noise=0.01, drift=0.3, count=40)
    assert max(other) > 2 * min(other)
    assert paired(arm, other, True).verdict == BETTER


def test_where_less_is_better_the_ratio_is_turned_round():
    arm, other = rounds(2.0, seed=0, noise=0.01, count=20)
    more = paired(arm, other, True)
    less = paired([1 / each for each in arm], [1 / each for each in other], False)
    assert less[:6] == pytest.approx(more[:6])
    assert (more.verdict, paired(arm, other, False).verdict) == (BETTER, WORSE)


@pytest.mark.parametrize("seed", range(10))
def test_stragglers_count_by_the_time_that_they_take(seed: int):
    """8 % of the samples of an arm take three times as long, which is 16 % of a job's time."""
    rng = np.random.default_rng(seed)
    costs, other = 1 + rng.normal(0, 0.003, (2, 80))
    costs[rng.permutation(80)[:6]] *= 3
    assert paired(costs.tolist(), other.tolist(), False).verdict != EQUAL
    costs = np.tile(costs, 4)  # as many as it takes to be sure
    found = paired(costs.tolist(), np.tile(other, 4).tolist(), False)
    assert (found.verdict, found.ratio) == (WORSE, pytest.approx(1 / 1.15, rel=0.01))


def test_before_so_many_rounds_stragglers_may_have_been_missed():
    small, large = rounds(1.1, 0, 0.001, count=20), rounds(1.5, 0, 0.001, count=20)
    assert (paired(*small, True).verdict, paired(*large, True).verdict) == (UNDECIDED, BETTER)
    assert paired(*small, True).low > 1
    few = rounds(1.0, 0, 0.001, count=stats.ENOUGH_ROUNDS - 1)
    assert paired(*few, True).verdict == UNDECIDED
    assert 0.92**stats.ENOUGH_ROUNDS < stats.MISSED


@pytest.mark.parametrize("steps", [0.1, 0.03])
def test_arms_are_not_equal_by_a_clock_that_cannot_tell_them_apart(steps: float):
    coarse = [round((1 + 0.001 * i) / steps) * steps for i in range(80)]
    found = paired(coarse, coarse[::-1], False)
    assert found.resolution == pytest.approx(steps, rel=0.1)
    assert found.verdict == UNDECIDED


def test_too_few_rounds_tell_nothing_however_clear_they_look():
    enough = math.floor(stats.quantile(stats.ERROR) ** 2) + 1  # of equal differences
    few = paired(*rounds(3.0, 0, noise=0.001, drift=0, count=enough - 1), True)
    assert (few.verdict, few.low, few.high) == (UNDECIDED, 0, math.inf)
    assert paired(*rounds(9.0, 0, noise=0.001, drift=0, count=enough + 1), True).verdict == BETTER


def test_more_rounds_are_advised_where_the_noise_is_larger_and_never_fewer_than_enough():
    quiet, noisy = (paired(*rounds(1.0, 0, noise=n, count=40), True) for n in (0.003, 0.1))
    assert stats.rounds_to_decide(quiet) == stats.ENOUGH_ROUNDS
    assert stats.rounds_to_decide(noisy) > stats.ENOUGH_ROUNDS


def test_the_interval_of_a_mean_holds_it_and_needs_rounds():
    values = np.random.default_rng(0).normal(1, 0.02, 40)
    mean, width = stats.mean_and_width(values)
    assert mean - width < 1 < mean + width
    assert stats.mean_and_width(values[:3])[1] == math.inf


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("error", [0.05, 0.01, 0.002])
def test_the_interval_and_the_p_value_say_the_same(seed: int, error: float):
    drawn = [np.random.default_rng(seed + i).lognormal(0, 0.03, (2, ENOUGH)) for i in range(5)]
    pairs = [(one * 1.02, other) for one, other in drawn]
    judged = stats.judge(pairs, error)
    for level, one in zip(stats.holm([each.p for each in judged], error), judged, strict=True):
        assert (one.p <= level) == (not one.low <= 1 <= one.high)
        assert one.low <= one.ratio <= one.high


@pytest.mark.full
@pytest.mark.parametrize("seed", range(20))
def test_no_set_of_signs_exceeds_the_bound_more_often_than_it_says(seed: int):
    """All signs of these differences, of which each is as likely."""
    sizes = np.abs(np.random.default_rng(seed).standard_t(1 + seed % 3, 16))
    signs = 1 - 2 * ((np.arange(2**16)[:, None] >> np.arange(16)) & 1)
    reached = np.abs(signs @ sizes) / math.sqrt(sizes @ sizes)
    for level in (0.2, 0.05, 0.01, 0.001):
        assert np.mean(reached > stats.quantile(level)) <= level


def test_the_level_of_a_table_is_shared_out_by_holms_steps():
    third, half = pytest.approx(0.01), pytest.approx(0.015)
    assert stats.holm([0.02, 0.001, 0.5], 0.03) == [third, third, third]
    assert stats.holm([0.014, 0.001, 0.5], 0.03) == [half, third, third]
    assert stats.holm([0.014, 0.001, 0.03], 0.03) == [half, third, 0.03]


def test_identical_samples_say_nothing_of_the_clock():
    found = paired([3.0] * 80, [3.0] * 80, True)
    assert (found.low, found.ratio, found.high, found.verdict) == (1.0, 1.0, 1.0, UNDECIDED)
    assert found.resolution == math.inf


@pytest.mark.parametrize("bad", [[0.0], [-1.0], [float("nan")], [float("inf")], [], [1.0, 2.0]])
def test_samples_that_are_no_measurement_are_refused(bad: list[float]):
    with pytest.raises(ValueError, match=r"above 0|2 rounds of one"):
        paired(bad, [1.0], True)


def test_several_series_count_alike_whatever_their_units():
    small, large = [1.0, 2.0], [1e6, 4e6]
    means = stats.geometric_means([small, large])
    assert means == [pytest.approx(1e3), pytest.approx(8e6**0.5)]

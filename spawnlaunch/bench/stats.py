"""Whether two arms differ, and by how much: pure functions of paired samples.

A sample is one number for a round: what the slowest rank reached, for a synchronous job runs at its
pace. Both arms of a round ran within seconds of each other, so what else the machine did in that
round hit both, and the ratio of the two is what is looked at: above 1 the arm is better.

The size of a difference is the median of the ratios, with a 95 % interval by bootstrap over the
rounds (Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13: percentiles). Whether
there is one at all is also asked of the signed-rank test (Wilcoxon, Biometrics Bulletin 1, 1945),
exactly: since the order of the arms is shuffled in every round, a ratio of equal arms is as likely
to lie above 1 as below it by the same factor. Both have to say so, for the bootstrap of a median of
few rounds claims differences between equal arms more often than one time in twenty.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FASTER, SLOWER = "better", "worse"
SAME = "no measurable difference"
FEW = "too few rounds to tell"

RESAMPLES = 10_000
COVERAGE = 0.95
# A table has some ten comparisons. At this level it is free of false claims 19 times out of 20.
CLAIM_P = 0.005
# From here on the signed-rank test can reach that level at all: 2 / 2**9 < 0.005 < 2 / 2**8.
MIN_ROUNDS = 9
# Pinning is said to be worth 1 to 10 % (torchrun's documentation of --numa-binding). Where the ends
# of the interval are further apart than 20 %, such a gain could hide in it on either side.
NOISY_SPAN = 1.2


class Comparison(NamedTuple):
    """One arm against another."""

    ratio: float  # median over the rounds; above 1 the arm is better
    low: float  # the 95 % interval of it
    high: float
    p: float  # how often equal arms would differ as much
    rounds: int
    verdict: str  # FASTER, SLOWER, SAME or FEW

    @property
    def noisy(self) -> bool:
        """Whether a difference that matters could hide in the noise."""
        return self.verdict == SAME and self.high / self.low > NOISY_SPAN


def paired(
    arm: Sequence[float], other: Sequence[float], higher_is_better: bool, seed: int
) -> Comparison:
    """Compare samples of the same rounds, all above 0. Raises ValueError for anything else."""
    _check(arm, other)
    if len(arm) != len(other):
        raise ValueError(f"{len(arm)} rounds of one arm and {len(other)} of the other")
    logs = np.log(arm) - np.log(other)
    if not higher_is_better:
        logs = -logs
    rng = np.random.default_rng(seed)
    drawn = np.median(_resampled(logs, rng), axis=1)
    return _comparison(float(np.median(logs)), drawn, signed_rank_p(logs), len(logs))


def unpaired(
    new: Sequence[float], old: Sequence[float], higher_is_better: bool, seed: int
) -> Comparison:
    """Compare samples of different runs; raises ValueError for a sample that is not above 0.

    The p-value is of the rank-sum test, by RESAMPLES random divisions of all samples.
    """
    _check(new, old)
    sign = 1.0 if higher_is_better else -1.0
    ours, theirs = sign * np.log(new), sign * np.log(old)
    rng = np.random.default_rng(seed)
    drawn = np.median(_resampled(ours, rng), axis=1) - np.median(_resampled(theirs, rng), axis=1)
    middle = float(np.median(ours) - np.median(theirs))
    p = _rank_sum_p(ours, theirs, rng)
    return _comparison(middle, drawn, p, min(len(ours), len(theirs)))


def inverse(found: Comparison) -> Comparison:
    """The same comparison, the other way round."""
    return found._replace(
        ratio=1 / found.ratio,
        low=1 / found.high,
        high=1 / found.low,
        verdict={FASTER: SLOWER, SLOWER: FASTER}.get(found.verdict, found.verdict),
    )


def signed_rank_p(values: NDArray[np.float64]) -> float:
    """The two-sided exact p-value of the signed-rank test; zeros are left out, ties share ranks."""
    values = values[values != 0]
    if len(values) == 0:
        return 1.0
    twice = np.rint(2 * _midranks(np.abs(values))).astype(int)  # whole numbers, in spite of ties
    positive = int(twice[values > 0].sum())
    ways = np.zeros(int(twice.sum()) + 1)  # ways to choose the signs, by the sum of positive ranks
    ways[0] = 1.0
    for rank in twice:
        ways[rank:] += ways[:-rank].copy()
    ways /= 2.0 ** len(values)
    return float(min(1.0, 2 * min(ways[: positive + 1].sum(), ways[positive:].sum())))


def judge(low: float, high: float, p: float, rounds: int) -> str:
    """The verdict of an interval of the ratio, a p-value and a number of rounds."""
    if low <= 1.0 <= high:
        return SAME
    if p <= CLAIM_P:
        return FASTER if low > 1.0 else SLOWER
    return FEW if rounds < MIN_ROUNDS else SAME


def middle(values: Sequence[float]) -> float:
    """The median."""
    return float(np.median(values))


def geometric_means(series: Sequence[Sequence[float]]) -> list[float]:
    """One number a round out of several series, so that none counts for more by its unit."""
    return [math.exp(float(np.mean(np.log(each)))) for each in zip(*series, strict=True)]


def _comparison(middle: float, drawn: NDArray[np.float64], p: float, rounds: int) -> Comparison:
    tail = (1.0 - COVERAGE) / 2.0
    low, high = (float(np.exp(np.quantile(drawn, q))) for q in (tail, 1.0 - tail))
    return Comparison(math.exp(middle), low, high, p, rounds, judge(low, high, p, rounds))


def _resampled(values: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Shape (RESAMPLES, rounds)."""
    return rng.choice(values, size=(RESAMPLES, len(values)))


def _rank_sum_p(
    ours: NDArray[np.float64], theirs: NDArray[np.float64], rng: np.random.Generator
) -> float:
    ranks = _midranks(np.concatenate((ours, theirs)))
    expected = ranks.mean() * len(ours)
    seen = abs(ranks[: len(ours)].sum() - expected)
    shuffled = rng.permuted(np.tile(ranks, (RESAMPLES, 1)), axis=1)[:, : len(ours)].sum(axis=1)
    as_far = np.count_nonzero(np.abs(shuffled - expected) >= seen - 1e-9)
    return float(as_far + 1) / (RESAMPLES + 1)  # what was seen is one of the divisions


def _midranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 1; equal values have the mean of theirs."""
    below = np.searchsorted(np.sort(values), values, side="left")
    up_to = np.searchsorted(np.sort(values), values, side="right")
    ranks: NDArray[np.float64] = (below + 1 + up_to) / 2.0
    return ranks


def _check(*samples: Sequence[float]) -> None:
    for each in samples:
        if not each or not all(0.0 < value < math.inf for value in each):
            raise ValueError(f"samples are numbers above 0, and these are not: {list(each)}")

"""Whether two arms differ, and by how much: pure functions of paired samples.

A sample is one number for a round: what a job that meets in every step would reach, which waits
for its slowest rank each time. The mean over all rounds counts, and not the typical round: an arm
that takes three times as long in one round of twelve makes a job a sixth longer. Both arms of a
round ran within seconds of each other, so other work of the machine in that round affected both.

The costs of two arms are compared: the time of a sample, or another value for which less is better.
With `a` and `b` the costs of two arms, round by round, and r a ratio of their means, the
differences b - r * a of the rounds have, where r is the truth, no preferred sign, whatever the
noise is like: the order of the arms is drawn in every round. The sum of such differences exceeds x
times the root of the sum of their squares with a probability of at most 3.18 times that of a normal
variable to exceed x (Bentkus and Dzindzalieta, Bernoulli 21, 2015). That holds for any number of
rounds. The interval has all r that are not rejected so: the roots of a quadratic equation, as
Fieller's. Interval and p-value never disagree.

    better, worse   the interval does not hold 1
    equal           the interval lies within DELTA of 1
    undecided       neither

No number of rounds shows what is rarer than they are. So a verdict allows for stragglers: samples
that take HUGE times as long. Before ENOUGH_ROUNDS a share of them that so few rounds would miss
with a probability of MISSED may be in either arm; only an interval that is further from 1 than that
differs, and no arms are equal.

There is one look at the samples, when the rounds have ended; when they end does not depend on which
arm is better. ERROR is the probability that a workload of equal arms claims any difference. It is
divided among the comparisons of the workload by Holm's steps (Scandinavian Journal of Statistics 6,
1979): the smallest p-value has to reach error / m, the next error / (m - 1), and so on to the first
that does not. A comparison that does not differ has its interval at error / m.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BETTER, WORSE, EQUAL, UNDECIDED = "better", "worse", "equal", "undecided"

ERROR = 0.05  # of a workload
DELTA = 0.03  # pinning is reported to gain 1 to 10 % (torchrun's documentation of --numa-binding)
ENOUGH_ROUNDS = 40  # a share of stragglers of 8 % is in as many but for MISSED
MOST_ROUNDS = 5 * ENOUGH_ROUNDS
HUGE, MISSED = 3.0, 0.04
CONSTANT = 3.18  # of the inequality, for one side

Floats = NDArray[np.float64]
Pair = tuple[Floats, Floats]  # the costs of an arm and of another one, round by round


class Comparison(NamedTuple):
    """The comparison of one arm with another."""

    ratio: float  # above 1 the arm is better
    low: float  # the interval of it; 0 and infinity where there are too few rounds
    high: float
    p: float  # how often equal arms would differ as much
    rounds: int
    verdict: str  # BETTER, WORSE, EQUAL or UNDECIDED; "" where nothing is claimed
    resolution: float = 0.0  # the steps that the costs are measured in, as 0.1; infinity: unknown


def pair(arm: Sequence[float], other: Sequence[float], higher_is_better: bool) -> Pair:
    """The costs of both: less is better. Raises ValueError."""
    for each in (arm, other):
        if not each or not all(0.0 < value < math.inf for value in each):
            raise ValueError(f"samples are numbers above 0, and these are not: {list(each)}")
    if len(arm) != len(other):
        raise ValueError(f"{len(arm)} rounds of one arm and {len(other)} of the other")
    sign = -1.0 if higher_is_better else 1.0
    return np.asarray(arm, float) ** sign, np.asarray(other, float) ** sign


def judge(pairs: Sequence[Pair], error: float) -> list[Comparison]:
    """The comparisons of a table, any of which claims a difference falsely so often at most."""
    if not pairs:
        return []
    p = [_p_value(other - arm) for arm, other in pairs]
    levels = holm(p, error)
    return [compared(each, level) for each, level in zip(pairs, levels, strict=True)]


def compared(costs: Pair, level: float) -> Comparison:
    """Compare two arms, with an interval at this level."""
    every = np.concatenate(costs)
    arm, other = (each / float(every.mean()) for each in costs)
    square = quantile(level) ** 2
    second = arm.sum() ** 2 - square * float(arm @ arm)
    first = arm.sum() * other.sum() - square * float(arm @ other)
    zeroth = other.sum() ** 2 - square * float(other @ other)
    low, high = 0.0, math.inf
    if second > 0:  # else there are too few rounds, or too few of them have all the cost
        root = math.sqrt(max(0.0, first**2 - second * zeroth))
        low, high = max(0.0, (first - root) / second), (first + root) / second
    ratio, rounds = float(other.sum() / arm.sum()), len(arm)
    steps = resolution(every)
    verdict = _judged(low, high, rounds, steps)
    return Comparison(ratio, low, high, _p_value(other - arm), rounds, verdict, steps)


def resolution(costs: Floats) -> float:
    """The steps of a coarse clock or counter, which repeats its values, as a share of the cost.

    >>> round(resolution(np.array([1.0, 1.1, 1.0, 1.0, 1.1])), 3), resolution(np.array([1.0, 1.13]))
    (0.1, 0.0)
    """
    known = np.unique(np.round(costs / costs.mean(), 12)) * costs.mean()
    if 2 * len(known) > len(costs):
        return 0.0
    return float(np.diff(known).min() / known[0]) if len(known) > 1 else math.inf


def _judged(low: float, high: float, rounds: int, steps: float) -> str:
    """The verdict on an interval of so many rounds, with costs measured in such steps."""
    beyond = 1 + unseen(rounds)
    if low > beyond or high < 1 / beyond:
        return BETTER if low > 1 else WORSE
    is_equal = low > 1 / (1 + DELTA) and high < 1 + DELTA and steps < DELTA
    return EQUAL if is_equal and rounds >= ENOUGH_ROUNDS else UNDECIDED


def unseen(rounds: int) -> float:
    """The share by which stragglers that so few rounds may have missed make a mean larger.

    >>> round(unseen(20), 2), unseen(40)
    (0.3, 0.0)
    """
    share = 1 - MISSED ** (1 / max(rounds, 1))
    return 0.0 if rounds >= ENOUGH_ROUNDS else (HUGE - 1) * share


@lru_cache
def quantile(level: float) -> float:
    """The largest ratio of the sum to the root of the sum of squares at a level, two-sided."""
    return -NormalDist().inv_cdf(max(1e-300, min(0.5, level / 2 / CONSTANT)))


def _p_value(differences: Floats) -> float:
    """The two-sided p-value: the largest probability that equal arms differ as much."""
    root = math.sqrt(float(differences @ differences))
    if root == 0:
        return 1.0
    return min(1.0, CONSTANT * math.erfc(abs(float(differences.sum())) / root / math.sqrt(2)))


def rounds_to_decide(comparison: Comparison) -> int:
    """The rounds that make the interval as narrow as DELTA to either side, if they are as these.

    >>> rounds_to_decide(Comparison(1.0, 1 / 1.06, 1.06, 1.0, 40, UNDECIDED))
    160
    """
    if comparison.low <= 0:
        return max(ENOUGH_ROUNDS, 2 * comparison.rounds)
    needed = comparison.rounds * (math.sqrt(comparison.high / comparison.low) - 1) ** 2 / DELTA**2
    return max(ENOUGH_ROUNDS, math.ceil(round(needed, 6)))


def mean_and_width(values: Floats, level: float = ERROR) -> tuple[float, float]:
    """The mean, and its interval's width to either side by the same bound; infinity: unknown."""
    square = quantile(level) ** 2
    free = len(values) - square
    spread = math.sqrt(square / free) * float(np.std(values)) if free > 0 else math.inf
    return float(np.mean(values)), spread


def holm(p: Sequence[float], error: float) -> list[float]:
    """The level of each comparison's interval, which does not hold 1 if its p reaches the level."""
    levels = [error / len(p)] * len(p)
    for step, which in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        level = error / (len(p) - step)
        if p[which] > level:
            break
        levels[which] = level
    return levels


def geometric_means(series: Sequence[Sequence[float]]) -> list[float]:
    """The geometric mean of several series in each round, in which no unit counts for more."""
    means: list[float] = np.exp(np.mean(np.log(series), axis=0)).tolist()
    return means

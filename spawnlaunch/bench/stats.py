"""Whether two arms differ, and by how much: pure functions of paired samples.

A sample is one number for a round: what a job that meets in every step would reach, which waits
for its slowest rank each time. What counts is the mean over all rounds and not the typical round:
an arm that takes three times as long in one round of twelve makes a job a sixth longer. Both arms
of a round ran within seconds of each other, so what else the machine did in that round hit both.

Compared are costs: the time of a sample, or what else is better if it is less. With `a` and `b`
the costs of two arms, round by round, and r a ratio of their means, the differences b - r * a of
the rounds have, where r is the truth, no preferred sign, whatever the noise is like: the order of
the arms is drawn in every round. The sum of such differences exceeds x times the root of the sum
of their squares with a probability of at most 3.18 times that of a normal variable to exceed x
(Bentkus and Dzindzalieta, Bernoulli 21, 2015). That holds for any number of rounds. The interval
has all r that are not rejected so: the roots of a quadratic equation, as Fieller's. Interval and
p-value never disagree.

    better, worse   the interval does not hold 1
    equal           the interval lies within DELTA of 1
    undecided       neither

No number of rounds shows what is rarer than they are. So a verdict allows for stragglers: samples
that take HUGE times as long. A share of them that so few rounds would miss with a probability of
MISSED may be in either arm; before SMALL_ROUNDS only an interval that is further from 1 than that
differs. Equal are arms only after EQUAL_ROUNDS, which miss a share of RARE in 1 of 150 benches.

ERROR is the probability that a page of equal arms claims any difference. It is divided evenly among
the workloads of the page and the looks at the rounds so far (LOOKS), and among the comparisons of a
workload by Holm's steps (Scandinavian Journal of Statistics 6, 1979): the smallest p-value has to
reach error / m, the next error / (m - 1), and so on to the first that does not. A comparison that
does not differ has its interval at error / m, and so a wrong claim of equality adds half of ERROR
at most.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BETTER, WORSE, EQUAL, UNDECIDED = "better", "worse", "equal", "undecided"

ERROR = 1 / 30
DELTA = 0.02  # pinning is said to be worth 1 to 10 % (torchrun's documentation of --numa-binding)
LOOKS = (20, 28, 40, 60, 80)  # after so many rounds; most of the rounds are new each time
RARE, HUGE, MISSED = 0.08, 3.0, 0.04
SMALL_ROUNDS, EQUAL_ROUNDS = 40, 60
CONSTANT = 3.18  # of the inequality, for one side

Floats = NDArray[np.float64]
Pair = tuple[Floats, Floats]  # the costs of an arm and of another one, round by round


class Comparison(NamedTuple):
    """One arm against another."""

    ratio: float  # above 1 the arm is better
    low: float  # the interval of it; 0 and infinity where there are too few rounds
    high: float
    p: float  # how often equal arms would differ as much
    rounds: int
    verdict: str  # BETTER, WORSE, EQUAL or UNDECIDED; "" where nothing is claimed
    resolution: float = 0.0  # the steps that the costs are measured in, as 0.1; infinity: unknown

    @property
    def seen(self) -> float:
        """From which size on a difference would have been seen, as 0.03; infinity: never."""
        return math.sqrt(self.high / self.low) - 1 if self.low > 0 else math.inf


def pair(arm: Sequence[float], other: Sequence[float], higher_is_better: bool) -> Pair:
    """The costs of both: less is better. Raises ValueError."""
    _check(arm, other)
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
    """One comparison at a level of its own."""
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

    >>> float(resolution(np.array([1.0, 1.1, 1.0, 1.0, 1.1]))), resolution(np.array([1.0, 1.13]))
    (0.1, 0.0)
    """
    known = np.unique(np.round(costs / costs.mean(), 12)) * costs.mean()
    if 2 * len(known) > len(costs):
        return 0.0
    return float(np.diff(known).min() / known[0]) if len(known) > 1 else math.inf


def _judged(low: float, high: float, rounds: int, steps: float) -> str:
    """The verdict of so many rounds of costs that are measured in such steps."""
    beyond = 1 + unseen(rounds, SMALL_ROUNDS)
    if low > beyond or high < 1 / beyond:
        return BETTER if low > 1 else WORSE
    is_equal = low > 1 / (1 + DELTA) and high < 1 + DELTA and steps < DELTA
    return EQUAL if is_equal and rounds >= EQUAL_ROUNDS else UNDECIDED


def unseen(rounds: int, enough: int) -> float:
    """By how much stragglers that so few rounds may have missed make a mean larger.

    >>> round(unseen(20, 40), 2), unseen(40, 40)
    (0.3, 0.0)
    """
    share = 1 - MISSED ** (1 / max(rounds, 1))
    return 0.0 if rounds >= enough else (HUGE - 1) * share


@lru_cache
def quantile(level: float) -> float:
    """How large the sum may be against the root of the sum of squares, two-sided."""
    return -NormalDist().inv_cdf(max(1e-300, min(0.5, level / 2 / CONSTANT)))


def _p_value(differences: Floats) -> float:
    """Two-sided: at most so often equal arms differ as much."""
    root = math.sqrt(float(differences @ differences))
    if root == 0:
        return 1.0
    return min(1.0, CONSTANT * math.erfc(abs(float(differences.sum())) / root / math.sqrt(2)))


def fewest_rounds(level: float) -> int:
    """From how many rounds on a level can be reached at all: equal differences have this root."""
    return math.floor(quantile(level) ** 2) + 1


def enough_rounds(pairs: Sequence[Pair], level: float) -> int:
    """As many rounds give an interval, if they are as these: several times them, LOOKS[0] at least.

    >>> enough_rounds([(np.ones(7), np.ones(7))], 0.01)
    21
    """
    rounds = len(pairs[0][0])
    most = max(float(each @ each) / float(each.sum()) ** 2 for pair in pairs for each in pair)
    times = max(math.floor(quantile(level) ** 2 * most) + 1, -(-LOOKS[0] // rounds))
    return rounds * times


def turned(found: Comparison) -> Comparison:
    """The same comparison, the other way round."""
    return found._replace(
        ratio=1 / found.ratio,
        low=1 / found.high,
        high=1 / found.low if found.low else math.inf,
        verdict={BETTER: WORSE, WORSE: BETTER}.get(found.verdict, found.verdict),
    )


def holm(p: Sequence[float], error: float) -> list[float]:
    """The level of each comparison's interval, which does not hold 1 if its p reaches the level."""
    levels = [error / len(p)] * len(p)
    for step, which in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        level = error / (len(p) - step)
        if p[which] > level:
            break
        levels[which] = level
    return levels


def error_of_look(rounds: int, is_last: bool) -> float:
    """The share of ERROR for a look after so many rounds; the last one has all that is left."""
    before = sum(1 for look in LOOKS if look < rounds)
    return ERROR * (len(LOOKS) - before if is_last else 1) / len(LOOKS)


def unpaired(
    new: Sequence[float], old: Sequence[float], higher_is_better: bool, level: float
) -> Comparison:
    """Compare two sets of runs, one number above 0 of each, by the rank-sum test.

    The interval is made of the ratios of any two runs (Hodges and Lehmann); `rounds` is the number
    of runs of the smaller set. Raises ValueError.
    """
    _check(new, old)
    ratios = np.subtract.outer(np.log(new), np.log(old)).ravel()
    sizes = np.sort(ratios if higher_is_better else -ratios)
    tail, rounds = _rank_sum_tail(len(new), len(old)), min(len(new), len(old))
    outside = int(np.searchsorted(tail, level / 2, side="right")) - 1
    low, high = (sizes[outside], sizes[-1 - outside]) if outside >= 0 else (-math.inf, math.inf)
    within = math.log1p(DELTA)
    if low > 0 or high < 0:
        verdict = BETTER if low > 0 else WORSE
    else:
        verdict = EQUAL if -within < low and high < within else UNDECIDED
    below = int(np.searchsorted(sizes, 0, side="left"))  # what is 0 counts for neither side
    above = len(sizes) - int(np.searchsorted(sizes, 0, side="right"))
    p = min(1.0, 2 * float(tail[len(sizes) - max(below, above)]))
    ratio = math.exp(float(np.median(sizes)))
    return Comparison(ratio, math.exp(low), math.exp(high), p, rounds, verdict)


def fewest_runs(level: float) -> int:
    """How many runs a side the rank-sum test needs to reach a level at all."""
    return next(n for n in range(1, 100) if 2 / math.comb(2 * n, n) <= level)


@lru_cache
def _rank_sum_tail(count: int, other: int) -> Floats:
    """How probable it is that at most 0, 1, 2... of all pairs of runs are in the wrong order.

    Of two sets that are alike; the ways are counted as Mann and Whitney do (Annals of Mathematical
    Statistics 18, 1947): the largest of all runs is one of ours, or one of theirs.
    """
    ways = [np.ones(1) for _ in range(other + 1)]
    for ours in range(1, count + 1):
        row = [np.ones(1)]
        for theirs in range(1, other + 1):
            both = np.zeros(ours * theirs + 1)
            both[theirs:] += ways[theirs]
            both[: len(row[-1])] += row[-1]
            row.append(both)
        ways = row
    tail: Floats = np.cumsum(ways[other]) / math.comb(count + other, other)
    return tail


def middle(values: Sequence[float]) -> float:
    """The median."""
    return float(np.median(values))


def geometric_means(series: Sequence[Sequence[float]]) -> list[float]:
    """One number a round out of several series, so that none counts for more by its unit."""
    means: list[float] = np.exp(np.mean(np.log(series), axis=0)).tolist()
    return means


def _check(*samples: Sequence[float]) -> None:
    for each in samples:
        if not each or not all(0.0 < value < math.inf for value in each):
            raise ValueError(f"samples are numbers above 0, and these are not: {list(each)}")

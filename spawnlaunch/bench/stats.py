"""Whether two arms differ, and by how much: pure functions of paired samples.

A sample is one number for a round: what the slowest rank reached, for a synchronous job runs at its
pace. Both arms of a round ran within seconds of each other, so what else the machine did in that
round hit both, and the ratio of the two is what is looked at: above 1 the arm is better. Since the
order of the arms is shuffled in every round, a ratio of equal arms is as likely to lie above 1 as
below it by the same factor, whatever the noise is like. That is all that the signed-rank test
(Wilcoxon, Biometrics Bulletin 1, 1945) needs, whose p-value is exact.

The interval holds the ratios that this test does not reject, so the interval and the verdict never
disagree: its ends are two of the means of any two rounds' log ratios, and their median is the
estimate (Hodges and Lehmann, Annals of Mathematical Statistics 34, 1963).

    better, worse   the interval does not hold 1
    equal           the interval lies within DELTA of 1
    undecided       neither

ERROR is the probability that a page of equal arms claims any difference. It is divided evenly among
the workloads of the page and the looks at the rounds so far (LOOKS), and among the comparisons of a
workload by Holm's steps (Scandinavian Journal of Statistics 6, 1979): the smallest p-value has to
reach error / m, the next error / (m - 1), and so on to the first that does not. A comparison that
does not differ has its interval at error / m, and so a wrong claim of equality adds half of ERROR
at most: together less than 1 in 20, for any noise and any number of equal arms.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

BETTER, WORSE, EQUAL, UNDECIDED = "better", "worse", "equal", "undecided"

ERROR = 1 / 30
DELTA = 0.02  # pinning is said to be worth 1 to 10 % (torchrun's documentation of --numa-binding)
LOOKS = (14, 20, 28, 40, 57, 80)  # after so many rounds; two of every three rounds are new

Floats = NDArray[np.float64]


class Comparison(NamedTuple):
    """One arm against another."""

    ratio: float  # above 1 the arm is better
    low: float  # the interval of it; 0 and infinity where there are too few rounds
    high: float
    p: float  # how often equal arms would differ as much
    rounds: int
    verdict: str  # BETTER, WORSE, EQUAL or UNDECIDED; "" where nothing is claimed

    @property
    def seen(self) -> float:
        """From which size on a difference would have been seen, as 0.03; infinity: never."""
        return math.sqrt(self.high / self.low) - 1 if self.low > 0 else math.inf


def paired(
    arm: Sequence[float], other: Sequence[float], higher_is_better: bool, error: float = ERROR
) -> Comparison:
    """Compare samples of the same rounds, all above 0. Raises ValueError for anything else."""
    return judge([log_ratios(arm, other, higher_is_better)], error)[0]


def log_ratios(arm: Sequence[float], other: Sequence[float], higher_is_better: bool) -> Floats:
    """Of each round, above 0 where the arm is better. Raises ValueError."""
    _check(arm, other)
    if len(arm) != len(other):
        raise ValueError(f"{len(arm)} rounds of one arm and {len(other)} of the other")
    logs: Floats = np.log(arm) - np.log(other)
    return logs if higher_is_better else -logs


def judge(differences: Sequence[Floats], error: float) -> list[Comparison]:
    """The comparisons of a table, of which any claims a difference falsely with this probability.

    Each is given as the log ratios of its rounds.
    """
    if not differences:
        return []
    p = [_p_value(pair_means(each), _tail(len(each))) for each in differences]
    levels = holm(p, error)
    return [compared(each, level) for each, level in zip(differences, levels, strict=True)]


def compared(logs: Floats, level: float) -> Comparison:
    """One comparison at a level of its own, from the log ratios of its rounds."""
    return _comparison(pair_means(logs), _tail(len(logs)), len(logs), level)


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


def pair_means(values: Floats) -> Floats:
    """The means of any two values, each with itself as well, sorted: n (n + 1) / 2 of them.

    The signed-rank test's sum of positive ranks is how many of them are above 0 (Tukey).
    """
    one, two = _pairs(len(values))
    means: Floats = np.sort((values[one] + values[two]) / 2)
    return means


def _comparison(sizes: Floats, tail: Floats, rounds: int, level: float) -> Comparison:
    """From sorted candidates for the log ratio, of which as many are outside as `tail` allows.

    `tail` has the probabilities that at most 0, 1, 2... of them are on the wrong side of 0 where
    nothing differs.
    """
    outside = int(np.searchsorted(tail, level / 2, side="right")) - 1
    low, high = (sizes[outside], sizes[-1 - outside]) if outside >= 0 else (-math.inf, math.inf)
    if low > 0 or high < 0:
        verdict = BETTER if low > 0 else WORSE
    else:
        within = math.log1p(DELTA)
        verdict = EQUAL if -within < low and high < within else UNDECIDED
    ratio = math.exp(float(np.median(sizes)))
    p = _p_value(sizes, tail)
    return Comparison(ratio, math.exp(low), math.exp(high), p, rounds, verdict)


def _p_value(sizes: Floats, tail: Floats) -> float:
    """Two-sided and exact. What is 0 counts for neither side."""
    below = int(np.searchsorted(sizes, 0, side="left"))
    above = len(sizes) - int(np.searchsorted(sizes, 0, side="right"))
    return min(1.0, 2 * float(tail[len(sizes) - max(below, above)]))


def fewest_rounds(level: float) -> int:
    """From how many rounds on the test can reach a level at all: 2 / 2**n."""
    return max(1, math.ceil(1 - math.log2(level)))


@lru_cache
def _tail(rounds: int) -> Floats:
    """How probable a sum of positive ranks of at most 0, 1, 2... is between equal arms."""
    ways = np.zeros(rounds * (rounds + 1) // 2 + 1)
    ways[0] = 1.0
    for rank in range(1, rounds + 1):
        ways[rank:] += ways[:-rank].copy()
        ways /= 2.0
    tail: Floats = np.cumsum(ways)
    return tail


@lru_cache
def _pairs(count: int) -> Any:
    return np.triu_indices(count)


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
    return _comparison(sizes, _rank_sum_tail(len(new), len(old)), min(len(new), len(old)), level)


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


def geometric_mean(values: Sequence[float]) -> float:
    """Of numbers above 0."""
    return math.exp(float(np.mean(np.log(values))))


def geometric_means(series: Sequence[Sequence[float]]) -> list[float]:
    """One number a round out of several series, so that none counts for more by its unit."""
    return [geometric_mean(each) for each in zip(*series, strict=True)]


def _check(*samples: Sequence[float]) -> None:
    for each in samples:
        if not each or not all(0.0 < value < math.inf for value in each):
            raise ValueError(f"samples are numbers above 0, and these are not: {list(each)}")

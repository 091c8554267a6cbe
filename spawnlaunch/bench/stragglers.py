"""Estimate the step of a job that synchronizes in every step: the mean slowest rank. Pure.

A step of all ranks is a slot: the first step of each, the second, and so on, which began together.
The time of the slowest rank in each slot is measured for the ranks that there are. A larger job is
taken for several such groups, each with slots of its own: the mean of the largest of m slots that
are drawn from all that were measured. So the common causes of ranks of one group, as a node's
neighbours or its clock, are not counted as chance; between groups nothing is shared. The cost of
more communication is not in it.

The interval is a bootstrap's, which draws whole rounds, for steps of one round are alike. Where it
is wide, or the samples have too few slots for such a tail, there is no estimate.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from spawnlaunch.bench import results, stats

Slots = list[stats.Floats]  # by round, the seconds of the slowest rank in each step

DRAWS = 200
OUTER = (2.5, 97.5)  # percentiles of the interval
TAIL = 5  # slots that shall be in the tail that decides, and rounds that there shall be
WIDEST = 1.25  # of an interval's ends that are shown
NO_STEPS = "not known, as steps are timed of bundled workloads alone, and not of jitter"


class Estimate(NamedTuple):
    """The mean step of so many ranks, seconds, with the ends of an interval."""

    mean: float
    low: float
    high: float


def slots(taken: Sequence[results.Taken], arm: str, series: str, ranks: int | None = None) -> Slots:
    """The slots of all samples; for fewer ranks than were measured, of each group of so many."""
    slots_of_rounds = []
    for each in taken:
        if each.arm == arm and not each.error:
            steps = [rank[series] for rank in each.steps if rank.get(series)]
            if steps and len(steps) == len(each.values):
                length = min(map(len, steps))
                times = np.array([its[:length] for its in steps])
                width = min(ranks or len(times), len(times))
                turns = [np.roll(times, i, axis=0)[:width].max(axis=0) for i in range(len(times))]
                slots_of_rounds.append(np.concatenate(turns) if width < len(times) else turns[0])
    return slots_of_rounds


def mean_of_largest(rounds: Slots, groups: float) -> float:
    """The mean of the largest of so many slots, each drawn from those that were measured.

    >>> mean_of_largest([np.array([1.0, 3.0])], 1), mean_of_largest([np.array([1.0, 3.0])], 2)
    (2.0, 2.5)
    """
    times = np.concatenate(rounds)
    weights = np.concatenate([np.full(len(each), 1 / len(each)) for each in rounds])
    order = np.argsort(times)
    reached = np.cumsum(weights[order]) / len(rounds)
    shares = np.diff(np.minimum(reached, 1.0) ** groups, prepend=0.0)
    return float(times[order] @ shares / shares.sum())


def estimate(rounds: Slots, groups: float) -> Estimate | None:
    """Estimate the mean of the largest of `groups` slots; None if these samples cannot show it.

    For twice the ranks that were measured enough rounds suffice.
    """
    rng = np.random.default_rng(len(rounds))
    drawn = [
        mean_of_largest([rounds[i] for i in rng.integers(len(rounds), size=len(rounds))], groups)
        for _ in range(DRAWS)
    ]
    low, high = np.percentile(drawn, OUTER)
    estimated = Estimate(mean_of_largest(rounds, groups), float(low), float(high))
    few = sum(map(len, rounds)) < TAIL * groups
    is_open = len(rounds) < TAIL or (groups > 2 and (few or high > WIDEST * low))
    return None if is_open else estimated


def at_size(measured: results.Measured, arm: str, series: str, ranks: int) -> Estimate | None:
    """Estimate the mean step of a job of so many ranks under an arm."""
    here = max((len(each.values) for each in measured.taken if each.arm == arm), default=0)
    its = slots(measured.taken, arm, series, ranks)
    return estimate(its, max(1.0, ranks / here)) if its else None


def lines(measured: results.Measured, sizes: Sequence[int], against: str) -> Iterator[str]:
    """Yield lines with each arm's estimated step at each size of a job."""
    for series in measured.series:
        every = {arm: its for arm in measured.there if (its := slots(measured.taken, arm, series))}
        name = f"{series}, " if series else ""
        for ranks in sizes:
            steps = {arm: at_size(measured, arm, series, ranks) for arm in every}
            texts = [f"{arm} {_in_words(its, steps.get(against))}" for arm, its in steps.items()]
            yield f"  {name}a step of {ranks} ranks: {'; '.join(texts) or NO_STEPS}"


def _in_words(its: Estimate | None, base: Estimate | None) -> str:
    if its is None:
        return "not known from these samples"
    text = f"{_ms(its.mean)} ms ({_ms(its.low)} to {_ms(its.high)})"
    if base is None or its is base:
        return text
    return f"{text}, {base.mean / its.mean:.2f} times as good"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}"

"""What a budget can decide, by the time and the noise of the first rounds of each workload. Pure.

A difference is likely to be seen if it exceeds the half of the interval that stats makes by POWER
times its noise, and what stragglers may hide. A workload is measured if the time that is left is
enough for the EQUAL_ROUNDS that can find two arms equal, or where its noise is too large for that
for the SMALL_ROUNDS from which on stragglers hide nothing. What counts most for the advice by the
time that it takes comes first. Where it is enough for none, the first that may have as many rounds
as any claim takes has it; of a whole bench at least the workload of the shortest rounds.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from spawnlaunch.bench import results, stats, table

TRIAL = 3  # rounds of each workload that count, behind those that warm up
TRIAL_SHARE = 0.25  # of the budget, that these may take at most
POWER = 0.84  # of a normal variable's quantile: four of five such differences are seen
NOISY = 0.1  # a workload that shows no smaller difference in all rounds comes after the others


class Cost(NamedTuple):
    """What the rounds of a workload take."""

    workload: str
    weight: float  # in the advice
    round_s: float
    noise: float  # standard deviation of two arms' difference in a round; infinity: not known
    level: float  # of each of its comparisons

    def seen(self, rounds: int) -> float:
        """The difference that so many rounds are likely to decide, as 0.02; infinity: none."""
        if rounds < self.fewest:
            return math.inf
        largest = stats.quantile(self.level)
        width = (largest + POWER) * self.noise / math.sqrt(rounds - largest**2)
        return width + stats.unseen(rounds, stats.SMALL_ROUNDS)

    @property
    def fewest(self) -> int:
        """From how many rounds on anything can be claimed."""
        return stats.fewest_rounds(self.level)

    @property
    def most(self) -> int:
        """From how many rounds on it is decided, whether arms differ or are equal."""
        looks = [each for each in stats.LOOKS if each >= stats.EQUAL_ROUNDS]
        return next((each for each in looks if self.seen(each) <= stats.DELTA), looks[-1])

    @property
    def need_s(self) -> float:
        """The least time that may find two arms equal, or else all that it is likely to decide."""
        can_be_equal = self.seen(stats.LOOKS[-1]) <= stats.DELTA
        return self.round_s * (stats.EQUAL_ROUNDS if can_be_equal else stats.SMALL_ROUNDS)


def cost(measured: results.Measured, rounds_s: Sequence[float], weight: float, claims: int) -> Cost:
    """From the seconds of the first rounds, and how many claims all workloads may make."""
    took_s = [each for each in rounds_s if each > 0]
    typical_s = float(np.median(took_s)) if took_s else math.inf
    level = stats.error_of_look(stats.EQUAL_ROUNDS, False) / max(1, claims)
    return Cost(measured.workload.name, weight, typical_s, noise(measured), level)


def noise(measured: results.Measured) -> float:
    """The standard deviation of the difference of two arms, of what arms and rounds do not explain.

    As a share of the values; infinity where there are no two arms and two rounds. Few rounds show
    too little as often as too much, so this is what the noise does not exceed in four of five
    cases: by the quantile of chi-squared (Wilson and Hilferty, Proc. Nat. Acad. Sci. 17, 1931).
    """
    summed = list(results.summed_up(measured).values())
    if not summed or len(summed[-1]) < 2 or measured.rounds < 2:
        return math.inf
    logs = np.log(np.array(list(summed[-1].values())))
    rest = logs - logs.mean(axis=0) - logs.mean(axis=1)[:, None] + logs.mean()
    free = (logs.shape[0] - 1) * (logs.shape[1] - 1)
    missed = math.pow(1 - 2 / (9 * free) - POWER * math.sqrt(2 / (9 * free)), -1.5)
    return missed * math.sqrt(2 * float((rest**2).sum()) / free)


def kept(costs: Sequence[Cost], left_s: float, *, least: int) -> list[Cost]:
    """Those that this time is enough for, in their order; or one, if it must be or may be told."""
    order = sorted(costs, key=_rank)
    chosen: list[Cost] = []
    for each in order:
        if sum(its.need_s for its in (*chosen, each)) <= left_s:
            chosen.append(each)
    able = [each for each in order if each.round_s * each.fewest <= left_s]
    return chosen or able[:1] or sorted(costs, key=lambda each: each.round_s)[:least]


def _rank(each: Cost) -> tuple[bool, float, float]:
    is_noisy = each.seen(stats.LOOKS[-1]) > NOISY
    return (each.round_s == math.inf or is_noisy, -each.weight / each.round_s, each.round_s)


def shares_s(chosen: Sequence[Cost], left_s: float) -> list[float]:
    """The part of the time for each of those that are kept."""
    total = sum(each.need_s for each in chosen)
    if len(chosen) == 1 or total == math.inf:
        return [left_s / len(chosen)] * len(chosen)
    return [left_s * each.need_s / total for each in chosen]


def lines(costs: Sequence[Cost], left_s: float, budget_s: float) -> Iterator[str]:
    """What this budget can decide, which would decide more, and what is left out by which rule."""
    chosen = kept(costs, left_s, least=1)
    told = []
    for each, share_s in zip(chosen, shares_s(chosen, left_s), strict=True):
        rounds = TRIAL + int(min(stats.LOOKS[-1] - TRIAL, max(0.0, share_s) / each.round_s))
        seen = each.seen(rounds)
        if seen < math.inf:
            told.append(f"a difference of {_percent(seen)} or more in {each.workload}")
        elif rounds < each.fewest:
            told.append(f"nothing in {each.workload}: {rounds} rounds are too few")
        else:
            told.append(f"nothing in {each.workload}, whose noise is not known")
    larger_s = budget_s - left_s + sum(each.round_s * each.most for each in costs)
    best = max(each.seen(each.most) for each in costs)
    is_more = budget_s < larger_s < math.inf and best < math.inf
    in_all = f"{_percent(best)} or more in every workload"
    more = f"; {table.lasting(larger_s)}: {in_all}" if is_more else ""
    words = ", ".join(told).replace(", a difference of", ",")
    yield f"{table.lasting(budget_s)} can show {words}{more}"
    names = [each.workload for each in sorted(costs, key=_rank) if each not in chosen]
    if names:
        yield f"measured only if time is left: {', '.join(names)}"


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < NOISY else f"{share:.0%}"

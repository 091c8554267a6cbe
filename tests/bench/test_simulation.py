"""The bench's rule on tables whose truth is known: how often it says what is not so.

A table has six workloads and four arms. Every workload has a budget of its own, which ends it after
so many rounds if it is not decided before. The order of the arms, the looks, the end of the rounds
and the advice are the bench's own.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from spawnlaunch.bench import advice, record, results, rounds, stats, workloads
from spawnlaunch.bench.arms import CONTROLS
from spawnlaunch.bench.stats import BETTER, EQUAL, WORSE, Comparison

ARMS = ("unpinned", "packed", "auto", "node")
AUTO = ARMS.index("auto")
WORKLOADS = ("compute", "triad", "allreduce", "loader", "train", "jitter")
WEIGHTS = advice.weights(WORKLOADS, ())
NOISE = 0.02  # standard deviation of a sample's logarithm

Rng = np.random.Generator
Logs = NDArray[np.float64]


def lognormal(rng: Rng, count: int) -> Logs:
    return rng.normal(0, NOISE, count)


def heavy(rng: Rng, count: int) -> Logs:
    """Student's t with two degrees of freedom: its variance is infinite."""
    return rng.standard_t(2, count) * NOISE / 2


def drifting(rng: Rng, count: int) -> Logs:
    """A machine that gets slower all the time, and whose speed walks at random too."""
    walk = np.cumsum(rng.normal(0, NOISE / 4, count))
    return walk - np.linspace(0, 0.3, count) + rng.normal(0, NOISE, count)


def autocorrelated(rng: Rng, count: int) -> Logs:
    """What disturbs a sample disturbs those that follow it as well."""
    noise = rng.normal(0, NOISE, count)
    for i in range(1, count):
        noise[i] = 0.9 * noise[i - 1] + math.sqrt(1 - 0.81) * noise[i]
    return noise


NOISES = (lognormal, heavy, drifting, autocorrelated)
# The logarithms of what the arms are worth: all alike; all DELTA apart, by which claims of equality
# go wrong; and `node` better in most workloads, but in one worse by the margin of the advice.
EQUALS = np.zeros((len(WORKLOADS), len(ARMS)))
EDGES = EQUALS + np.arange(len(ARMS)) * math.log1p(stats.DELTA)
TEMPTING = EQUALS + np.array([0, math.log(0.5), 0, 0.03])
TEMPTING[1, 3] = math.log1p(-advice.MARGIN) - 1e-9


def workload(
    rng: Rng, worth: Logs, noise: Callable[[Rng, int], Logs], budget: int
) -> list[Comparison]:
    """The comparisons of a workload when its rounds ended."""
    seed, name = int(rng.integers(2**31)), "compute"
    places = [rounds.order(ARMS, seed, name, i) for i in range(budget)]
    noises = noise(rng, budget * len(ARMS)).reshape(budget, len(ARMS))
    taken = [
        record.Taken(name, i, arm, ({"": math.exp(worth[ARMS.index(arm)] + its)},))
        for i in range(budget)
        for arm, its in zip(places[i], noises[i], strict=True)
    ]
    measured = results.Measured(workloads.NAMES[name], ARMS, [], 0.0)
    for done in sorted({*(look for look in stats.LOOKS if look < budget), budget}):
        measured = measured._replace(taken=taken[: done * len(ARMS)])
        error = rounds.error_of_end(measured, ARMS[0], len(WORKLOADS), done == budget)
        if error:
            break
    rows = results.rows_of(measured._replace(error=error), ARMS[0])
    return [row.comparison for row in rows]


def is_false(verdict: str, size: float) -> bool:
    """Whether a claim is not so, of arms that differ by this."""
    if verdict == EQUAL:
        return abs(size) >= math.log1p(stats.DELTA) - 1e-12
    return (verdict == BETTER and size <= 0) or (verdict == WORSE and size >= 0)


def table(rng: Rng, truth: Logs, noise: Callable[[Rng, int], Logs]) -> tuple[bool, bool, int, int]:
    """Whether it has a false claim, and wrong advice; how many intervals, and how many miss."""
    against_auto: dict[str, dict[str, Comparison]] = {arm: {} for arm in ARMS}
    false, missed, pairs = False, 0, results.pairs(ARMS, ARMS[0])
    for worth, name in zip(truth, WORKLOADS, strict=True):
        budget = int(rng.integers(stats.LOOKS[0], stats.LOOKS[-1] + 1))
        for (arm, other), its in zip(pairs, workload(rng, worth, noise, budget), strict=True):
            size = worth[ARMS.index(arm)] - worth[ARMS.index(other)]
            false |= is_false(its.verdict, size)
            missed += not math.log(max(its.low, 1e-99)) <= size <= math.log(its.high)
            if other == "auto":
                against_auto[arm][name] = its
            elif arm == "auto":
                against_auto[other][name] = stats.turned(its)
    named = [arm for arm in ARMS if arm not in (*CONTROLS, "auto")]
    best = advice.choose([advice.candidate(arm, against_auto[arm], WEIGHTS) for arm in named])
    if best is None:
        return false, False, len(pairs) * len(WORKLOADS), missed
    sizes = truth[:, ARMS.index(best.arm)] - truth[:, AUTO]
    mean = sum(WEIGHTS.get(name, 0) * size for name, size in zip(WORKLOADS, sizes, strict=True))
    wrong = mean <= 1e-12 or min(sizes) < math.log1p(-advice.MARGIN)
    return false, wrong, len(pairs) * len(WORKLOADS), missed


@pytest.mark.parametrize(
    "tables",  # for each noise and truth
    [pytest.param(5, marks=pytest.mark.full), pytest.param(100, marks=pytest.mark.nightly)],
)
def test_the_rule_is_hardly_ever_wrong(tables: int):
    rng = np.random.default_rng(1)
    found = [
        table(rng, truth, noise)
        for noise in NOISES
        for truth in (EQUALS, EDGES, TEMPTING)
        for _ in range(tables)
    ]
    false, wrong, intervals, missed = map(sum, zip(*found, strict=True))
    assert false <= 0.05 * len(found) + 2.5 * (0.05 * 0.95 * len(found)) ** 0.5
    assert wrong <= 0.01 * len(found) + 3
    assert missed <= 0.06 * intervals


@pytest.mark.full
def test_differences_of_3_percent_are_found_in_40_rounds():
    rng, worth = np.random.default_rng(2), np.array([0, math.log1p(0.03), 0, 0])
    verdicts = [workload(rng, worth, lognormal, 40)[0].verdict for _ in range(50)]
    assert verdicts.count(BETTER) >= 40

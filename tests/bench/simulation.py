"""How often the rule of the bench is wrong, and what it finds, on workloads whose truth is known.

    python -m tests.bench.simulation            1,000 workloads of each kind of noise

A workload has three arms and 40 rounds, in the bench's own order. False claims are counted where
all arms are equal, and where they differ by exactly what counts as equal. Power is how often a
difference of 3 % between two arms is found, with noise of 2 %.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spawnlaunch.bench import results, rounds, stats, workloads

NOISE = 0.02  # standard deviation of a sample's logarithm
ARMS = ("auto", "unpinned", "node")
COUNT = 1000

Noise = Callable[[np.random.Generator, int], NDArray[np.float64]]


def lognormal(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    return rng.normal(0, NOISE, count)


def heavy_tailed(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Student's t with two degrees of freedom: its variance is infinite."""
    return rng.standard_t(2, count) * NOISE / 2


def drifting(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """A machine that gets slower all the time, and whose speed walks at random too."""
    walk = np.cumsum(rng.normal(0, NOISE / 4, count))
    return walk - np.linspace(0, 0.3, count) + rng.normal(0, NOISE, count)


def autocorrelated(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """What disturbs a sample disturbs those that follow it as well."""
    noise = rng.normal(0, NOISE, count)
    for i in range(1, count):
        noise[i] = 0.9 * noise[i - 1] + math.sqrt(1 - 0.81) * noise[i]
    return noise


def straggling(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """One sample of twelve takes three times as long."""
    return rng.normal(0, NOISE, count) - np.where(rng.random(count) < 1 / 12, math.log(3), 0)


def periodic(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Each fourth sample is disturbed."""
    return rng.normal(0, NOISE, count) - 0.1 * (np.arange(count) % 4 == 0)


HELD = (lognormal, heavy_tailed, drifting, autocorrelated)
SHOWN = (straggling, periodic)


class Found(NamedTuple):
    """Of the workloads of one kind of noise."""

    false: float  # share with a false claim, the larger one of both truths
    power: float  # share in which the difference is found


def verdicts(
    rng: np.random.Generator, worth: tuple[float, ...], noise: Noise
) -> list[stats.Comparison]:
    """The comparisons of a workload with as many arms as there are logarithms in `worth`."""
    arms, seed = ARMS[: len(worth)], int(rng.integers(2**31))
    size = dict(zip(arms, worth, strict=True))
    noises = iter(noise(rng, stats.ENOUGH_ROUNDS * len(arms)))
    taken = [
        results.Taken("train", i, arm, ({"": math.exp(size[arm] + next(noises))},))
        for i in range(stats.ENOUGH_ROUNDS)
        for arm in rounds.order(arms, f"train {seed}", i)
    ]
    measured = results.Measured(workloads.NAMES["train"], arms, taken)
    return [row.comparison for row in results.rows_of(measured, arms[0])]


def is_false(found: stats.Comparison, size: float) -> bool:
    """Whether a claim is not so, of arms whose logarithms differ by this."""
    if found.verdict == stats.EQUAL:
        return abs(size) >= math.log1p(stats.DELTA) - 1e-12
    is_above = found.verdict == stats.BETTER and size <= 0
    return is_above or (found.verdict == stats.WORSE and size >= 0)


def simulate(noise: Noise, count: int) -> Found:
    """As many workloads for each truth."""
    rng, edge = np.random.default_rng(1), math.log1p(stats.DELTA)
    shares = [
        np.mean([any(map(is_false, verdicts(rng, truth, noise), truth[1:])) for _ in range(count)])
        for truth in ((0.0, 0.0, 0.0), (0.0, edge, -edge))
    ]
    seen = [verdicts(rng, (0.0, math.log1p(0.03)), noise)[0].verdict for _ in range(count)]
    return Found(float(max(shares)), seen.count(stats.BETTER) / count)


def main() -> None:
    print(f"{COUNT} workloads of each kind, {stats.ENOUGH_ROUNDS} rounds, noise {NOISE:.0%}")
    for noise in (*HELD, *SHOWN):
        found = simulate(noise, COUNT)
        print(f"{noise.__name__:15} false claims {found.false:5.1%}   finds 3 % {found.power:6.1%}")


if __name__ == "__main__":
    main()

"""The bench's rule on tables whose truth is known: how often it says what is not so.

    python -m tests.bench.simulation [--tables 2000] [--seed 0]

A table has six workloads and four arms, thirty comparisons with a verdict, and every workload a
budget of its own, which ends it after 14 to 80 rounds if it is not decided before. The rule is the
bench's own: `stats.judge` at the looks of `stats.error_of_look`, and `advice.choose`.
"""

import argparse
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spawnlaunch.bench import advice, stats
from spawnlaunch.bench.arms import CONTROLS
from spawnlaunch.bench.results import pairs
from spawnlaunch.bench.stats import BETTER, EQUAL, UNDECIDED, WORSE, Comparison

ARMS = ("unpinned", "packed", "auto", "node")
PAIRS = pairs(ARMS, "unpinned")
WORKLOADS = ("compute", "triad", "allreduce", "loader", "train", "jitter")
WEIGHTS = advice.weights(WORKLOADS, ())
NOISE = 0.02  # standard deviation of a sample's logarithm
FEWEST, MOST = stats.LOOKS[0], stats.LOOKS[-1]

Rng = np.random.Generator
Logs = NDArray[np.float64]


def lognormal(rng: Rng, count: int) -> Logs:
    return rng.normal(0, NOISE, count)


def heavy(rng: Rng, count: int) -> Logs:
    """Student's t with two degrees of freedom: its variance is infinite."""
    return rng.standard_t(2, count) * NOISE / 2


def bimodal(rng: Rng, count: int) -> Logs:
    """Every third sample meets something that takes a tenth of its speed."""
    return rng.normal(0, NOISE / 2, count) - 0.1 * (rng.random(count) < 1 / 3)


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


NOISES = (lognormal, heavy, bimodal, drifting, autocorrelated)
SIZES = (0.0, 0.0, 0.01, -0.01, stats.DELTA, -stats.DELTA, 0.03, -0.03, 0.1)


def equal(_rng: Rng) -> Logs:
    """All arms are the same."""
    return np.zeros((len(WORKLOADS), len(ARMS)))


def mixed(rng: Rng) -> Logs:
    """Arms that differ by nothing, by less than DELTA, exactly by it, or by more; a bad control."""
    truth = np.log1p(rng.choice(SIZES, (len(WORKLOADS), len(ARMS))))
    truth[:, 1] = math.log(0.5)
    return truth


def edges(_rng: Rng) -> Logs:
    """Everything by which claims of equality can go wrong: all arms DELTA apart."""
    return np.tile(np.arange(len(ARMS)) * math.log1p(stats.DELTA), (len(WORKLOADS), 1))


def tempting(_rng: Rng) -> Logs:
    """`node` is better in some workloads, but in the mean a hair worse, or worse by the margin."""
    truth = np.zeros((len(WORKLOADS), len(ARMS)))
    truth[:, 1] = math.log(0.5)
    truth[:, 3] = 0.03
    truth[1, 3] = math.log1p(-advice.MARGIN) - 1e-9
    return truth


def level(_rng: Rng) -> Logs:
    """`node` is better in four workloads by as much as it is worse in `train`."""
    truth = np.zeros((len(WORKLOADS), len(ARMS)))
    truth[:, 3] = [0.02, 0.02, 0.02, 0.02, -0.03, 0]
    truth[4, 3] = (
        -sum(WEIGHTS[n] * truth[i, 3] for i, n in enumerate(WORKLOADS[:4])) / WEIGHTS["train"]
    )
    return truth


def three(_rng: Rng) -> Logs:
    """Arms that differ by 3 % or not at all; each of these tables has 40 rounds."""
    truth = np.zeros((len(WORKLOADS), len(ARMS)))
    truth[:, 1] = truth[:, 2] = math.log1p(0.03)
    return truth


TRUTHS = (equal, mixed, edges, tempting, level, three)
POWER_ROUNDS = 40


class Count(NamedTuple):
    """What was counted, of how many."""

    tables: int = 0
    false_claims: int = 0  # tables with any
    wrong_advice: int = 0  # tables with it
    sure_advice: int = 0
    intervals: int = 0
    missed: int = 0  # intervals that do not hold the truth
    undecided: int = 0
    rounds: int = 0  # in all workloads
    differ: int = 0  # comparisons of arms that are not equal
    found: int = 0  # of these, those that say so

    def plus(self, other: "Count") -> "Count":
        return Count(*(a + b for a, b in zip(self, other, strict=True)))


def workload(
    rng: Rng, truth: Logs, noise: Callable[[Rng, int], Logs], budget: int
) -> tuple[list[Comparison], int]:
    """The comparisons of a workload when its rounds ended, and how many there were."""
    slots = noise(rng, budget * len(ARMS)).reshape(budget, len(ARMS))
    order = rng.permuted(np.tile(np.arange(len(ARMS)), (budget, 1)), axis=1)
    values = truth + np.take_along_axis(slots, order, axis=1)
    column = {name: values[:, i] for i, name in enumerate(ARMS)}
    for rounds in sorted({*(n for n in stats.LOOKS if n < budget), budget}):
        error = stats.error_of_look(rounds, rounds == budget) / len(WORKLOADS)
        logs = [(column[arm] - column[other])[:rounds] for arm, other in PAIRS]
        found = stats.judge(logs, error)
        if all(each.verdict != UNDECIDED for each in found):
            break
    return found, rounds


def table(
    rng: Rng, truth: Logs, noise: Callable[[Rng, int], Logs], budget: int | None = None
) -> Count:
    """One table, counted."""
    count = Count(tables=1)
    against_auto: dict[str, dict[str, Comparison]] = {arm: {} for arm in ARMS}
    false = False
    for i, name in enumerate(WORKLOADS):
        most = budget or int(rng.integers(FEWEST, MOST + 1))
        found, rounds = workload(rng, truth[i], noise, most)
        count = count._replace(rounds=count.rounds + rounds)
        for (arm, other), its in zip(PAIRS, found, strict=True):
            size = truth[i, ARMS.index(arm)] - truth[i, ARMS.index(other)]
            false |= is_false(its.verdict, size)
            count = count.plus(
                Count(
                    intervals=1,
                    missed=not math.log(max(its.low, 1e-99)) <= size <= math.log(its.high),
                    undecided=its.verdict == UNDECIDED,
                    differ=size != 0,
                    found=size != 0 and its.verdict in (BETTER, WORSE),
                )
            )
            if other == "auto":
                against_auto[arm][name] = its
            elif arm == "auto":
                against_auto[other][name] = stats.turned(its)
    candidates = [
        advice.candidate(arm, against_auto[arm], WEIGHTS)
        for arm in ARMS
        if arm not in (*CONTROLS, "auto")
    ]
    best = advice.choose(candidates)
    wrong = best is not None and is_wrong(truth, ARMS.index(best.arm))
    return count._replace(
        false_claims=int(false), wrong_advice=int(wrong), sure_advice=int(best is not None)
    )


def is_false(verdict: str, size: float) -> bool:
    """Whether a claim is not so, of arms that differ by this."""
    if verdict == EQUAL:
        return abs(size) >= math.log1p(stats.DELTA) - 1e-12
    return (verdict == BETTER and size <= 0) or (verdict == WORSE and size >= 0)


def is_wrong(truth: Logs, arm: int) -> bool:
    """Whether this arm is not better than the default, or somewhere worse by the margin."""
    sizes = truth[:, arm] - truth[:, ARMS.index("auto")]
    mean = sum(WEIGHTS.get(name, 0) * size for name, size in zip(WORKLOADS, sizes, strict=True))
    return mean <= 1e-12 or min(sizes) < math.log1p(-advice.MARGIN)


def simulate(tables: int, seed: int) -> Iterator[tuple[str, str, Count]]:
    """For each kind of noise and of truth, what was counted; `tables` is their number per noise."""
    for noise in NOISES:
        for kind in TRUTHS:
            rng = np.random.default_rng([seed, NOISES.index(noise), TRUTHS.index(kind)])
            count = Count()
            for _ in range(-(-tables // len(TRUTHS))):
                budget = POWER_ROUNDS if kind is three else None
                count = count.plus(table(rng, kind(rng), noise, budget))
            yield noise.__name__, kind.__name__, count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(
        f"{options.tables} tables per noise, seed {options.seed}; shares of tables or comparisons"
    )
    print("noise           truth     false   wrong   advice  covered undecided rounds  differ")
    totals: dict[str, Count] = {}
    for noise, kind, count in simulate(options.tables, options.seed):
        totals[noise] = totals.get(noise, Count()).plus(count)
        print(line(noise, kind, count), flush=True)
    for noise, count in totals.items():
        print(line(noise, "all", count))


def line(noise: str, kind: str, count: Count) -> str:
    tables, comparisons = count.tables, count.intervals
    shares = (
        f"{count.false_claims / tables:6.2%}",
        f"{count.wrong_advice / tables:6.2%}",
        f"{count.sure_advice / tables:7.1%}",
        f"{1 - count.missed / comparisons:7.2%}",
        f"{count.undecided / comparisons:8.1%}",
        f"{count.rounds / tables / len(WORKLOADS):6.1f}",
        f"{count.found / count.differ:.1%}" if count.differ else "-",
    )
    return f"{noise:15} {kind:9} {'  '.join(shares)}"


if __name__ == "__main__":
    main()

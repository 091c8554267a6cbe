"""The bench's rule on tables whose truth is known: how often it says what is not so.

    python -m tests.bench.simulation [--tables 2000] [--seed 0]

A table has six workloads and four arms, thirty comparisons with a verdict, and every workload a
budget of its own, which ends it after 14 to 80 rounds if it is not decided before. The rule is the
bench's own: `rounds.order`, `rounds.error_of_end` at the looks, and `advice.choose`.
"""

import argparse
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spawnlaunch.bench import advice, record, results, rounds, stats, workloads
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

# What samples are beside noise: a function of the costs' logarithms, in the order of time (rounds,
# then the places in a round), and of the arm in each place, to the costs that are measured.
Happens = Callable[[Rng, Logs, NDArray[np.int64]], Logs]
STRAGGLES = (0.08, 3.0)  # the share of an arm's samples, and how many times as long they take
CLOCK = 0.1  # the steps of a coarse clock, of the time of a sample
LEFT = 0.04  # what one arm leaves to whoever follows it
NEIGHBOUR = (0.15, 1.5, 5)  # how often a neighbour comes, what it takes, and for how many samples


def nothing(_rng: Rng, costs: Logs, _arms: NDArray[np.int64]) -> Logs:
    return costs


def stragglers(rng: Rng, costs: Logs, places: NDArray[np.int64]) -> Logs:
    """One arm, the last, straggles in each workload, and so its mean is 16 % larger."""
    share, times = STRAGGLES
    late = (places == len(ARMS) - 1) & (rng.random(costs.shape) < share)
    return costs + np.where(late, math.log(times), 0.0)


def coarse(_rng: Rng, costs: Logs, _places: NDArray[np.int64]) -> Logs:
    return np.log(np.maximum(1, np.round(np.exp(costs) / CLOCK)) * CLOCK)


def carried(_rng: Rng, costs: Logs, places: NDArray[np.int64]) -> Logs:
    """Who follows the first arm is slower, whoever it is."""
    follows = np.concatenate(([False], places.ravel()[:-1] == 0)).reshape(places.shape)
    return costs + np.where(follows, math.log1p(LEFT), 0.0)


def neighbours(rng: Rng, costs: Logs, _places: NDArray[np.int64]) -> Logs:
    """Another user of the machine comes and goes, whatever arm is measured."""
    often, times, samples = NEIGHBOUR
    comes = np.repeat(rng.random(costs.size // samples + 1) < often, samples)[: costs.size]
    return costs + np.where(comes.reshape(costs.shape), math.log(times), 0.0)


HAPPENS: tuple[Happens, ...] = (stragglers, coarse, carried, neighbours)


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
    rng: Rng, truth: Logs, kind: tuple[Callable[[Rng, int], Logs], Happens], budget: int
) -> tuple[list[Comparison], int]:
    """The comparisons of a workload when its rounds ended, and how many there were.

    The order of the arms, the looks and the end of the rounds are the bench's own.
    """
    noise, happens = kind
    seed, name = int(rng.integers(2**31)), "compute"
    places = np.array([
        [ARMS.index(arm) for arm in rounds.order(ARMS, seed, name, i)] for i in range(budget)
    ])  # fmt: skip
    slots = noise(rng, budget * len(ARMS)).reshape(budget, len(ARMS))
    costs = np.exp(happens(rng, -truth[places] - slots, places))
    measured = results.Measured(workloads.NAMES[name], ARMS, [], 0.0)
    for done in range(1, budget + 1):
        if done in stats.LOOKS or done == budget:
            taken = [
                record.Taken(name, i, ARMS[arm], ({"": 1 / float(cost)},))
                for i in range(done)
                for arm, cost in zip(places[i], costs[i], strict=True)
            ]
            measured = measured._replace(taken=taken)
            error = rounds.error_of_end(measured, ARMS[0], len(WORKLOADS), done == budget)
            if error:
                break
    rows = results.rows_of(measured._replace(error=error), ARMS[0])
    return [row.comparison for row in rows], done


def table(
    rng: Rng,
    truth: Logs,
    kind: tuple[Callable[[Rng, int], Logs], Happens],
    budget: int | None = None,
) -> Count:
    """One table, counted."""
    true = truth.copy()
    if kind[1] is stragglers:  # what counts is the mean
        true[:, -1] -= math.log1p(STRAGGLES[0] * (STRAGGLES[1] - 1))
    count = Count(tables=1)
    against_auto: dict[str, dict[str, Comparison]] = {arm: {} for arm in ARMS}
    false = False
    for i, name in enumerate(WORKLOADS):
        most = budget or int(rng.integers(FEWEST, MOST + 1))
        found, done = workload(rng, truth[i], kind, most)
        count = count._replace(rounds=count.rounds + done)
        for (arm, other), its in zip(PAIRS, found, strict=True):
            size = true[i, ARMS.index(arm)] - true[i, ARMS.index(other)]
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
    wrong = best is not None and is_wrong(true, ARMS.index(best.arm))
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
    """For each kind and truth what was counted; `tables` is their number per kind.

    Kinds are noise alone, and, with lognormal noise, each of HAPPENS.
    """
    kinds = [(noise, nothing) for noise in NOISES]
    kinds += [(lognormal, happens) for happens in HAPPENS]
    for number, kind in enumerate(kinds):
        name = kind[0].__name__ if kind[1] is nothing else kind[1].__name__
        for truth in TRUTHS:
            rng = np.random.default_rng([seed, number, TRUTHS.index(truth)])
            count = Count()
            for _ in range(-(-tables // len(TRUTHS))):
                budget = POWER_ROUNDS if truth is three else None
                count = count.plus(table(rng, truth(rng), kind, budget))
            yield name, truth.__name__, count


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

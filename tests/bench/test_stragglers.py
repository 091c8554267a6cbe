"""Steps of each rank: what a job pays that waits in each for its slowest rank."""

import numpy as np
import pytest

from spawnlaunch.bench import bench_page, results, stragglers
from spawnlaunch.bench.results import Taken
from spawnlaunch.bench.workloads import NAMES, timing
from tests.bench.results import on
from tests.bench.test_arms import LAPTOP
from tests.machines.tree import node_of

MEASURED, STEPS, ROUNDS = 4, 20, 40
SIZES = (8, 32, 64)


def drawn(rng: np.random.Generator, ranks: int, kind: str) -> np.ndarray:
    """Steps of one window, of ranks of one node: an array of shape (ranks, STEPS), seconds."""
    shape = (ranks, STEPS)
    own = np.exp(rng.normal(0, 0.1, shape))
    if kind == "stragglers":  # of a rank, in one step of twelve
        own *= np.where(rng.random(shape) < 0.08, 3, 1)
    if kind == "node":  # all ranks of it at once
        own *= np.where(rng.random(STEPS) < 0.08, 2, 1)
    if kind == "heavy":
        own = 1 + 0.1 * rng.pareto(4, shape)
    return own


def bench(seed: int, kind: str) -> results.Measured:
    rng = np.random.default_rng(seed)
    taken = [
        Taken(
            "compute", i, arm,
            tuple({"": 1 / float(its.mean())} for its in times),
            steps=tuple({"": its.tolist()} for its in times),
        )
        for i in range(ROUNDS)
        for arm in ("unpinned", "auto")
        for times in [drawn(rng, MEASURED, kind)]
    ]  # fmt: skip
    return results.Measured(NAMES["compute"], ("unpinned", "auto"), taken)


def truth(kind: str, ranks: int) -> float:
    """The mean of the slowest of so many, on nodes of as many as were measured."""
    rng = np.random.default_rng(0)
    nodes = ranks // MEASURED
    rounds = [
        np.max([drawn(rng, MEASURED, kind).max(axis=0) for _ in range(nodes)], axis=0)
        for _ in range(200)
    ]
    return float(np.mean(rounds))


@pytest.mark.full
@pytest.mark.parametrize("kind", ["noise", "stragglers", "node", "heavy"])
def test_what_is_told_of_a_larger_job_is_within_a_tenth_of_the_truth(kind: str):
    for ranks in SIZES:
        expected, told = truth(kind, ranks), 0
        for seed in range(6):
            found = stragglers.at_size(bench(seed, kind), "auto", "", ranks)
            told += found is not None
            assert found is None or found.mean == pytest.approx(expected, rel=0.1)
        assert told >= {8: 6, 32: 3, 64: 0}[ranks]


def test_of_few_samples_a_large_job_cannot_be_told():
    whole = bench(0, "noise")
    for rounds, ranks, is_told in ((5, 512, False), (5, 8, True), (2, 8, False), (1, 4, False)):
        few = whole._replace(taken=whole.taken[: 2 * rounds])
        assert (stragglers.at_size(few, "auto", "", ranks) is not None) == is_told


def test_arms_of_few_and_of_many_ranks_are_told_of_a_job_of_the_same_size():
    of = {"unpinned": 2, "auto": MEASURED}
    whole = bench(2, "noise")
    cut = [
        t._replace(values=t.values[: of[t.arm]], steps=t.steps[: of[t.arm]]) for t in whole.taken
    ]
    few, many = (stragglers.at_size(whole._replace(taken=cut), arm, "", 8) for arm in of)
    assert few.mean == pytest.approx(many.mean, rel=0.05)


def test_of_fewer_ranks_than_were_measured_each_group_counts():
    its = bench(1, "noise")
    one, two, four = (stragglers.at_size(its, "auto", "", ranks) for ranks in (1, 2, 4))
    assert 1.0 < one.mean < two.mean < four.mean


@pytest.mark.parametrize("groups", [1, 2, 3.5, 16])
def test_the_mean_of_the_largest_is_that_of_the_order_statistics(groups: float):
    """Of numbers that are evenly spread between 0 and 1 it is m / (m + 1)."""
    even = [(np.arange(1000) + 0.5) / 1000]
    found = stragglers.mean_of_largest(even, groups)
    assert found == pytest.approx(groups / (groups + 1), abs=0.002)


def test_a_round_is_worth_what_its_slowest_rank_in_each_step_lets_it_be():
    """Each rank is late once, and alone is as fast as the others; together they are late twice."""
    steps = ({"": [1.0, 3.0, 1.0, 1.0]}, {"": [1.0, 1.0, 3.0, 1.0]})
    one = Taken("compute", 0, "auto", ({"": 1 / 1.5},) * 2, steps=steps)
    measured = results.Measured(NAMES["compute"], ("auto",), [one])
    assert results.summed_up(measured)[""] == {"auto": [pytest.approx(1 / 2)]}
    together = measured._replace(workload=NAMES["train"])
    assert results.summed_up(together)[""] == {"auto": [pytest.approx(1 / 1.5)]}


def test_the_page_has_a_line_for_each_size():
    found = on(node_of(LAPTOP), 2, {"compute": {}}, ("unpinned", "auto"))
    page = "\n".join(
        bench_page.page(found._replace(measured=[bench(0, "stragglers")]), ranks=(8, 10**6))
    )
    assert " 8 ranks: " in page
    assert " times as good" in page
    assert "1000000 ranks: unpinned not known" in page


@pytest.mark.parametrize("kind", ["noise", "stragglers", "period"])
def test_neither_a_rounds_value_nor_a_larger_job_depends_on_how_many_steps_a_sample_has(kind: str):
    """One more step than are kept, and many more, are no better an arm."""
    rng, found = np.random.default_rng(3), []
    for count in (timing.MOST_STEPS, timing.MOST_STEPS + 1, 8 * timing.MOST_STEPS):
        taken = []
        for i in range(ROUNDS):
            times = np.exp(rng.normal(0, 0.2, (MEASURED, count)))
            times *= np.where(rng.random(times.shape) < 0.05, 3, 1) if kind == "stragglers" else 1
            times *= np.where(np.arange(count) % 8 == 0, 3, 1) if kind == "period" else 1
            kept = times[:, timing.draw_steps(count, i)].tolist()
            values = tuple({"": 1 / float(its.mean())} for its in times)
            taken.append(Taken("compute", i, "auto", values, steps=tuple({"": k} for k in kept)))
        measured = results.Measured(NAMES["compute"], ("auto",), taken)
        told = stragglers.at_size(measured, "auto", "", 16)
        found.append((np.mean(results.summed_up(measured)[""]["auto"]), told.mean))
    for more in found[1:]:
        assert more == pytest.approx(found[0], rel=0.03)


def test_of_a_sample_without_steps_a_larger_job_cannot_be_told():
    found = on(node_of(LAPTOP), 2, {"jitter": {}}, ("unpinned", "auto"))
    assert f"  a step of 8 ranks: {stragglers.NO_STEPS}" in list(bench_page.page(found, ranks=(8,)))

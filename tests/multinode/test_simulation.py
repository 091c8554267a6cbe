"""Generated schedules of launchers on several nodes: all that must hold does, in each."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.multinode.mutants import MUTANTS, Mutant, found_by
from tests.multinode.simulation import Simulation

SEEDS, STEP = 600, 100
# What must have been there in so many schedules: else they show nothing.
REACHED = (
    "again failure", "again join", "again lost", "again signal", "end absent", "end failure",
    "end hang", "end lost", "end signal", "end timeout", "end unable", "end well", "compared",
    "node is stopping seeking", "node is finished joined", "exit lost", "sent down stop",
)  # fmt: skip
seen: Counter[str] = Counter()


@pytest.mark.parametrize("first", range(0, SEEDS, STEP))
def test_all_that_must_hold_does(first: int) -> None:
    for seed in range(first, first + STEP):
        simulation = Simulation(seed)
        simulation.run()
        seen.update(simulation.seen)
    if first + STEP == SEEDS:
        assert [what for what in REACHED if not seen[what]] == []


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(SEEDS, 100_000, 1000))
def test_thousands_of_schedules(first: int) -> None:
    for seed in range(first, first + 1000):
        Simulation(seed).run()


def test_hundreds_of_nodes() -> None:
    Simulation(3, nodes=200).run()


@pytest.mark.nightly
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.rule)
def test_a_fault_in_the_rules_is_found(mutant: Mutant) -> None:
    assert found_by(range(20_000), mutant) is not None


def test_faults_are_of_the_rules_as_they_are() -> None:
    for mutant in MUTANTS:
        assert mutant.codes

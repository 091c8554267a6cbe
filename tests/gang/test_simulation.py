"""The rules hold in generated schedules of faults; simulation names what must hold."""

from collections.abc import Callable

import pytest

from spawnlaunch.gang import messages
from tests.gang import test_rules
from tests.gang.hosts import Broken
from tests.gang.mutants import MUTANTS, Mutant, rules
from tests.gang.simulation import Simulation

SEEDS = 2000
PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
def test_the_rules_hold(part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        Simulation(seed).run()


def test_a_seed_replays_exactly() -> None:
    first: list[str] = []
    second: list[str] = []
    Simulation(7, trace=first.append).run()
    Simulation(7, trace=second.append).run()
    assert first == second


def test_each_message_is_sent_and_each_end_is_reached() -> None:
    seen: set[str] = set()
    for seed in range(600):
        simulation = Simulation(seed)
        simulation.run()
        seen |= simulation.seen.keys()
    kinds = {kind.__name__ for kind in (*messages.TO_HUB, *messages.TO_MEMBER)} - {"Refused"}
    assert {f"message {kind}" for kind in kinds} <= seen
    causes = ("failure", "hang", "lost", "signal", "timeout", "absent", "well")
    assert {f"end {kind}" for kind in causes} <= seen
    assert {f"again {kind}" for kind in ("failure", "hang", "lost", "signal", "join")} <= seen


FOUND = [mutant for mutant in MUTANTS if not mutant.test]


@pytest.mark.parametrize("mutant", FOUND, ids=lambda mutant: mutant.rule)
def test_each_fault_in_a_rule_is_found(mutant: Mutant) -> None:
    """By its seed; after a change of the simulation `python -m tests.gang --mutants` tells it."""
    assert mutant.seed is not None
    with pytest.raises(Broken):
        Simulation(mutant.seed, *rules(mutant)).run()
    Simulation(mutant.seed).run()


@pytest.mark.parametrize(
    "mutant", [mutant for mutant in MUTANTS if mutant.test], ids=lambda mutant: mutant.rule
)
def test_each_fault_in_a_rule_that_schedules_do_not_reach_is_found(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a test of that rule alone."""
    monkeypatch.setattr(test_rules, "hub", rules(mutant)[0])
    with pytest.raises((AssertionError, ValueError)):
        run_all_cases(getattr(test_rules, mutant.test))


def run_all_cases(function: Callable[..., None]) -> None:
    cases = [case for mark in getattr(function, "pytestmark", []) for case in mark.args[1]]
    for case in cases or [()]:
        function(*case)

"""The rules hold in generated schedules of faults; simulation names what must hold."""

import pytest

from spawnlaunch.gang import hub_records as h
from spawnlaunch.gang import member_records as m
from spawnlaunch.gang import messages
from tests.gang import reached, test_rules
from tests.gang.hosts import Broken
from tests.gang.mutants import MUTANTS, Mutant, rules
from tests.gang.simulation import Simulation

SEEDS = 2000
PARTS = 8
SELDOM = 30  # branches that no schedule of these reaches


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


def test_a_seed_that_breaks_replays_exactly() -> None:
    """With all that has led there, and the same words."""
    mutant = next(mutant for mutant in MUTANTS if mutant.seed is not None)
    told: list[list[str]] = []
    for _ in range(2):
        lines: list[str] = []
        with pytest.raises(Broken) as broken:
            Simulation(mutant.seed or 0, *rules(mutant), trace=lines.append).run()
        told.append([*lines, str(broken.value)])
    assert told[0] == told[1]


class Seen:
    """What the schedules have reached, with rules that note where they go."""

    def __init__(self) -> None:
        self.rules = reached.Marked()
        self.what: set[str] = set()
        hub, member = self.rules.modules["hub"], self.rules.modules["member"]
        for seed in range(SEEDS):
            simulation = Simulation(seed, hub, member)
            simulation.run()
            self.what |= simulation.seen.keys()


@pytest.fixture(scope="module")
def seen() -> Seen:
    return Seen()


def test_each_message_is_sent_and_each_state_and_end_is_reached(seen: Seen) -> None:
    kinds = {kind.__name__ for kind in (*messages.TO_HUB, *messages.TO_MEMBER)}
    assert {f"message {kind}" for kind in kinds} <= seen.what
    phases = (h.JOINING, h.RUNNING, h.STOPPING, h.ENDED)
    assert {f"hub is {phase}" for phase in phases} <= seen.what
    states = (m.SEEKING, m.GREETING, m.JOINED, m.RUNNING, m.DONE, m.STOPPING, m.FENCED, m.ENDED)
    assert {f"member is {state}" for state in states} <= seen.what
    causes = ("failure", "hang", "lost", "signal", "timeout", "absent", "well")
    assert {f"end {kind}" for kind in causes} <= seen.what
    assert {f"again {kind}" for kind in ("failure", "hang", "lost", "signal", "join")} <= seen.what


def test_each_branch_of_the_rules_is_reached(seen: Seen) -> None:
    """By a schedule, or where none may get there, by a test of that rule alone."""
    by_schedules = seen.rules.unreached()
    reached.run_tests(seen.rules.modules)
    assert seen.rules.unreached() == []
    assert len(by_schedules) <= SELDOM, by_schedules


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
    for name, module in zip(("hub", "member"), rules(mutant), strict=True):
        monkeypatch.setattr(test_rules, name, module)
    with pytest.raises((AssertionError, ValueError, IndexError)):
        reached.run_all_cases(getattr(test_rules, mutant.test))

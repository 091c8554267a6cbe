"""The rules hold in generated schedules of faults; simulation names what must hold."""

import pytest

from spawnlaunch.gang import member, messages, phases
from tests.gang import reached, test_rules
from tests.gang.hosts import Broken
from tests.gang.mutants import MUTANTS, Mutant
from tests.gang.simulation import Simulation
from tests.support import edits

SEEDS = 2000
PARTS = 8
# A crash is over, unseen, long after another rank has written its error file; what is said of an
# abort is heard after a cut; a launcher is cut off from before it could find the hub until its end.
ONCE_BROKEN = (21566, 34630, 35758)
LARGE = range(6)
SELDOM = 30  # branches that no schedule of these reaches
SEEN = [mutant for mutant in MUTANTS if isinstance(mutant.found, int)]


@pytest.mark.parametrize("part", range(PARTS))
def test_the_rules_hold(part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        Simulation(seed).run()


@pytest.mark.parametrize("seed", ONCE_BROKEN)
def test_the_rules_hold_where_they_once_did_not(seed: int) -> None:
    Simulation(seed).run()


@pytest.mark.parametrize("seed", LARGE)
def test_the_rules_hold_for_hundreds_of_nodes(seed: int) -> None:
    Simulation(seed, nodes=500).run()


def test_a_seed_replays_exactly() -> None:
    first: list[str] = []
    second: list[str] = []
    Simulation(7, trace=first.append).run()
    Simulation(7, trace=second.append).run()
    assert first == second


def test_a_seed_that_breaks_replays_exactly() -> None:
    """With all that has led there, and the same words."""
    mutant = SEEN[0]
    told: list[list[str]] = []
    for _ in range(2):
        lines: list[str] = []
        with edits.instead(mutant.codes), pytest.raises(Broken) as broken:
            Simulation(int(mutant.found), trace=lines.append).run()
        told.append([*lines, str(broken.value)])
    assert told[0] == told[1]


class Seen:
    """What the schedules have reached, with rules that note where they go."""

    def __init__(self) -> None:
        self.rules = reached.Marked()
        self.what: set[str] = set()
        with self.rules.noting():
            for seed in range(SEEDS):
                simulation = Simulation(seed)
                simulation.run()
                self.what |= simulation.seen.keys()


@pytest.fixture(scope="module")
def seen() -> Seen:
    return Seen()


@pytest.mark.full
def test_each_message_is_sent_and_each_state_and_end_is_reached(seen: Seen) -> None:
    kinds = {kind.__name__ for kind in (*messages.TO_HUB, *messages.TO_MEMBER)}
    assert {f"message {kind}" for kind in kinds} <= seen.what
    of_hub = (phases.JOINING, phases.RUNNING, phases.STOPPING, phases.ENDED)
    assert {f"hub is {phase}" for phase in of_hub} <= seen.what
    states = (
        member.SEEKING,
        member.GREETING,
        member.JOINED,
        member.RUNNING,
        member.DONE,
        member.STOPPING,
        member.FENCED,
        member.ENDED,
    )
    assert {f"member is {state}" for state in states} <= seen.what
    causes = ("failure", "hang", "lost", "signal", "timeout", "absent", "well")
    assert {f"end {kind}" for kind in causes} <= seen.what
    assert {f"again {kind}" for kind in ("failure", "hang", "lost", "signal", "join")} <= seen.what


@pytest.mark.full
def test_each_branch_of_the_rules_is_reached(seen: Seen) -> None:
    """By a schedule, or where none may get there, by a test of that rule alone."""
    by_schedules = seen.rules.unreached()
    with seen.rules.noting():
        reached.run_tests()
    assert seen.rules.unreached() == []
    assert len(by_schedules) <= SELDOM, by_schedules


@pytest.mark.parametrize("mutant", SEEN, ids=lambda mutant: mutant.rule)
def test_each_fault_in_a_rule_is_found(mutant: Mutant) -> None:
    """By its seed; after a change of the simulation `python -m tests.gang --mutants` tells it."""
    with edits.instead(mutant.codes), pytest.raises(Broken):
        Simulation(int(mutant.found)).run()
    Simulation(int(mutant.found)).run()


@pytest.mark.parametrize(
    "mutant", [each for each in MUTANTS if each not in SEEN], ids=lambda mutant: mutant.rule
)
def test_each_fault_in_a_rule_that_schedules_do_not_reach_is_found(mutant: Mutant) -> None:
    """By a test of that rule alone."""
    raised = pytest.raises((AssertionError, ValueError, IndexError))
    with edits.instead(mutant.codes), raised:
        reached.run_all_cases(getattr(test_rules, str(mutant.found)))

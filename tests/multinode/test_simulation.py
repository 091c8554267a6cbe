"""The rules hold in generated schedules of faults; simulation names what must hold."""

import pytest

from spawnlaunch.multinode import member, messages, phases
from tests.multinode.__main__ import simulate
from tests.multinode.hosts import Broken
from tests.multinode.mutants import MUTANTS, Mutant
from tests.multinode.simulation import Simulation
from tests.support import edits

# A crash is over, unseen, long after another rank has written its error file; what is said of an
# abort is heard after a cut; a launcher is cut off from before it could find the hub until its end.
ONCE_BROKEN = (21566, 34630, 35758)
SEEDS = sorted({*ONCE_BROKEN, *(mutant.found for mutant in MUTANTS)})  # they have found something
MANY = 1000
STATES = {
    f"{who} is {value}"
    for who, module in (("hub", phases), ("member", member))
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, str)
}
CAUSES = {f"end {kind}" for kind in ("failure", "hang", "lost", "signal", "timeout", "absent")}
AGAIN = {f"again {kind}" for kind in ("failure", "hang", "lost", "signal", "join")}


@pytest.mark.parametrize("seed", SEEDS)
def test_the_rules_hold(seed: int) -> None:
    Simulation(seed).run()


def test_a_seed_replays_exactly() -> None:
    traces: list[list[str]] = []
    for _ in range(2):
        traces.append([])
        Simulation(7, trace=traces[-1].append).run()
    assert traces[0] == traces[1]


def test_the_rules_hold_for_hundreds_of_nodes() -> None:
    Simulation(0, nodes=200).run()


@pytest.mark.full
def test_the_rules_hold_in_many_schedules_which_reach_all_of_them() -> None:
    seen: set[str] = set()
    for seed in range(MANY):
        simulation = Simulation(seed)
        simulation.run()
        seen |= simulation.seen.keys()
    kinds = {f"message {kind.__name__}" for kind in (*messages.TO_HUB, *messages.TO_MEMBER)}
    assert not (kinds | STATES | CAUSES | AGAIN | {"end well"}) - seen


@pytest.mark.nightly
def test_the_rules_hold_in_100_000_schedules() -> None:
    assert simulate(range(100_000)) == 0


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(6))
def test_the_rules_hold_for_more_nodes(seed: int) -> None:
    Simulation(seed, nodes=500).run()


@pytest.mark.nightly
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.rule)
def test_each_fault_in_a_rule_is_found_alike_each_time(mutant: Mutant) -> None:
    traces: list[list[str]] = []
    for _ in range(2):
        traces.append([])
        with edits.instead(mutant.codes), pytest.raises(Broken):
            Simulation(mutant.found, trace=traces[-1].append).run()
    assert traces[0] == traces[1]

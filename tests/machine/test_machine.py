"""The simulated machine is as Linux is, the same for each seed, and no launch breaks in it."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.machine import conformance
from tests.machine.door import OWN, Door, calls
from tests.machine.generating import generated
from tests.machine.play import play
from tests.machine.properties import broken, verdicts

# What was broken once, and is not any more: the seed, the number of nodes, and how.
ONCE_BROKEN = {
    (46518, 1): "status 0 though output was lost: nobody read the line that said so, either",
    (6786, 1): "what did not die at once was left: all stood still just after a wait for its death",
    (9726, 1): "of one that had ended, as the guard was stopped, it was said that it still ran",
    (41, 6): "a name server was asked once more for each port",
    (6988, 1): "who exited while the launcher stood was named before the abort that he died of",
    (3905, 1): "likewise of who was killed",
    (83090, 1): "of nobody it was said that he did not die, as the launcher was killed at the end",
    (20766, 1): "what did not die at once was said to be left, as all stood still after the kill",
    (423045, 6): "a launcher that cannot take part was stopped, and had no time left to say so",
    (62, 6): "of several nodes, what workers had left was killed as soon as they had ended well",
}


def test_linux_and_the_simulation_show_the_same_to_small_programs():
    found = conformance.differences(conformance.PROGRAMS)
    assert len(conformance.PROGRAMS) >= 200
    assert not found, "\n".join(f"== {name}\n{words}" for name, words in found.items())


def test_each_call_that_is_simulated_is_one_of_the_door():
    """One of the door that is not simulated is an error in a simulated launch."""
    simulated = {name for name in dir(Door) if not name.startswith("_")} - OWN
    assert simulated <= calls()


# How often each property has something to judge there, at least: else it would hold of nothing.
LEAST = 2
NOT_OF_SEVERAL = {"all_of_it_is_kept"}
SEEDS = {1: 500, 3: 120}  # by the number of nodes; test_seeds.py plays those after them


@pytest.mark.parametrize("nodes", SEEDS, ids=["one node", "several"])
def test_no_launch_is_broken_in_generated_schedules(nodes):
    wrong, judged = {}, Counter[str]()
    for seed in range(SEEDS[nodes]):
        played = play(generated(seed, None if nodes == 1 else 2 + seed % (nodes - 1)))
        for name, found in verdicts(played).items():
            judged[name] += bool(found)
            if any(found):
                wrong[seed, name] = found
    assert not wrong
    idle = {name for name, times in judged.items() if times < LEAST}
    assert idle == (set() if nodes == 1 else NOT_OF_SEVERAL)


@pytest.mark.parametrize(("seed", "nodes"), ONCE_BROKEN, ids=str)
def test_what_was_broken_once_is_not_any_more(seed, nodes):
    assert not broken(play(generated(seed, 2 + seed % (nodes - 1) if nodes > 1 else None)))


@pytest.mark.parametrize("nodes", [None, 3], ids=["one node", "several"])
def test_one_seed_has_one_trace(nodes):
    shown = [play(generated(seed, nodes), trace=True).kernel.trace for seed in (13, 13, 12, 13)]
    assert shown[0] == shown[1] == shown[3]
    command = [sys.executable, "-m", "tests.machine", "--seed", "13", "--trace"]
    command += ["--nodes", "4"] if nodes else []  # at most: of seed 13 they are three
    for salt in ("1", "2"):
        told = subprocess.run(
            command,
            env={**os.environ, "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        )
        lines = told.stdout.splitlines()
        assert lines[1 : 1 + len(shown[0])] == shown[0]

"""The program that tries mutants: what it makes, and what it leaves out."""

import ast
import gc

import pytest

from spawnlaunch.binding import cores
from tests.mutants import engine
from tests.mutants.mutate import EQUIVALENT, ROOT, mutants, mutated

CORES = "spawnlaunch/binding/cores.py"


@pytest.mark.full
def test_each_equivalent_mutant_is_one_that_there_is() -> None:
    """What was changed or deleted is no excuse any more."""
    there = {each.key for path in {key.split()[0] for key in EQUIVALENT} for each in mutants(path)}
    assert EQUIVALENT.keys() - there == set()


@pytest.mark.full
def test_every_mutant_is_another_program() -> None:
    made = mutants(CORES)
    source = ast.unparse(ast.parse((ROOT / CORES).read_text()))
    texts = {ast.unparse(mutated(each)) for each in made}
    assert source not in texts
    assert len(texts) == len(made) == len({each.key for each in made})


@pytest.mark.nightly
def test_a_change_that_a_check_sees_is_dead_and_another_lives() -> None:
    def is_well() -> bool:
        return len(cores.divide([cores.Core(frozenset({0}), 0, 0)], 2)) == 2

    check, _ = engine.measured("two parts of a core", is_well)
    made = [each for each in mutants(CORES) if each.function == "divide"]
    gc.freeze()
    outcomes = {each.change: by for each, by in engine.try_all(made, [check], 2)}
    assert outcomes["parts > len(cores) -> parts >= len(cores)"].by == ""
    assert outcomes["if not (parts > len(cores))"].by == check.name
    assert is_well()

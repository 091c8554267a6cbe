"""A sample of each subject; `python -m tests.fuzz` tries as many as one likes."""

from collections.abc import Iterator

import pytest

from tests.fuzz import engine, trees
from tests.fuzz.subjects import SUBJECTS

SEED = 20261121


@pytest.fixture(scope="module", autouse=True)
def no_trees_left() -> Iterator[None]:
    yield
    trees.remove()


@pytest.mark.parametrize(
    ("name", "count"),
    [("cli", 500), ("environments", 500), ("lists", 100), ("errorfiles", 200), ("trees", 20),
     ("wire", 50), ("hub", 200)],
)  # fmt: skip
def test_in_this_process(name: str, count: int) -> None:
    assert next(engine.failures(SUBJECTS[name], SEED, count), None) is None


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "count"),
    [("cli", 1000), ("environments", 1000), ("lists", 1000), ("errorfiles", 1000), ("trees", 200),
     ("wire", 1000), ("hub", 5000)],
)  # fmt: skip
def test_more_of_what_comes_from_elsewhere(name: str, count: int) -> None:
    assert next(engine.failures(SUBJECTS[name], SEED + 10**6, count), None) is None


@pytest.mark.parametrize(
    "name", [name for name, subject in SUBJECTS.items() if subject.judge_real is not None]
)
def test_as_commands(name: str) -> None:
    assert next(engine.failures(SUBJECTS[name], SEED, 7, real=True), None) is None

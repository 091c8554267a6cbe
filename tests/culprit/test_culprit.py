"""The rank that others wait for is named, and its line, whatever library trains."""

import pytest

from tests.culprit.launches import Case, play, score
from tests.support.patience import PATIENCE_S

CASES = [
    Case(0, "ddp", "data", 2, (1,), 0.3),
    Case(0, "fsdp", "lock", 2, (0,), 0.3),
    Case(0, "loaders", "data", 2, (1,), 0.6),
    Case(0, "compile", "sleep", 2, (1,), 0.3),
    Case(0, "thread", "data", 2, (0,), 0.3),
    Case(0, "pair", "sleep", 2, (1,), 0.3),
]


@pytest.mark.full
@pytest.mark.parametrize("one", CASES, ids=lambda one: f"{one.client} {one.fault}")
def test_the_right_rank_is_named_and_its_line(one: Case) -> None:
    found = play(one, PATIENCE_S)
    right = score(one, found)
    assert right.rank, found
    assert right.line is not False, found

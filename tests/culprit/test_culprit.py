"""Some of the launches of `python -m tests.culprit`: the right rank is named, and its line."""

import pytest

from tests.culprit.__main__ import Case, play, score
from tests.support.patience import PATIENCE_S

CASES = [
    Case(0, "ddp", "data", 3, (1,), 0.3),
    Case(0, "ddp", "mismatch", 3, (2,), 0.3),
    Case(0, "fsdp", "lock", 2, (0,), 0.3),
    Case(0, "ddp", "stop", 2, (1,), 0.3),
]


@pytest.mark.full
@pytest.mark.parametrize("one", CASES, ids=lambda one: f"{one.client} {one.fault}")
def test_the_right_rank_is_named_and_its_line(one: Case) -> None:
    found = play(one, PATIENCE_S)
    right = score(one, found)
    assert right.rank, found
    assert right.line is not False, found

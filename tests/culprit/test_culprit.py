"""Some of the launches of `python -m tests.culprit`: the right rank is named, and its line."""

import pytest

from tests.culprit.__main__ import NEEDED, Case, main, play, score
from tests.support.patience import PATIENCE_S
from tests.support.required import require_packages

CASES = [Case(0, "ddp", "data", 2, (1,), 0.3), Case(0, "fsdp", "mismatch", 2, (0,), 0.3)]


@pytest.mark.full
@pytest.mark.parametrize("one", CASES, ids=lambda one: f"{one.client} {one.fault}")
def test_the_right_rank_is_named_and_its_line(one: Case) -> None:
    found = play(one, PATIENCE_S)
    right = score(one, found)
    assert right.rank, found
    assert right.line is not False, found


@pytest.mark.nightly
def test_generated_faults_are_named_and_healthy_ranks_are_not() -> None:
    require_packages(*NEEDED)
    assert main(["--seeds", "30"]) == 0

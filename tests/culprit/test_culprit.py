"""The rank that others wait for is named, and its line, whatever library trains."""

from collections import Counter

import pytest

from tests.culprit.launches import Case, case, play, score
from tests.support.patience import PATIENCE_S
from tests.support.required import require_packages

CASES = [Case(0, "ddp", "data", 2, (1,), 0.3), Case(0, "fsdp", "lock", 2, (0,), 0.3)]
SEEDS = 40
RANKS, LINES = 0.98, 0.95  # that are right, at least


@pytest.mark.full
@pytest.mark.parametrize("one", CASES, ids=lambda one: f"{one.client} {one.fault}")
def test_the_right_rank_is_named_and_its_line(one: Case) -> None:
    found = play(one, PATIENCE_S)
    right = score(one, found)
    assert right.rank, found
    assert right.line is not False, found


@pytest.mark.nightly
def test_generated_faults_are_named_and_healthy_ranks_are_not() -> None:
    require_packages("lightning", "transformers")
    right: Counter[str] = Counter()
    for one in map(case, range(SEEDS)):
        found = play(one)
        got = score(one, found)
        print(one, got, found if not got.rank or got.line is False else "", flush=True)
        right["ranks"] += got.rank
        right["lines"] += got.line is not False
    assert right["ranks"] >= RANKS * SEEDS
    assert right["lines"] >= LINES * SEEDS

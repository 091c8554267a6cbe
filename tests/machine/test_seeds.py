"""Launches in the simulated machine by the thousand."""

import pytest

from tests.machine.__main__ import main
from tests.machine.test_machine import SEEDS

ONE, SEVERAL = 2300, 180  # seeds in `make full`
PARTS = [
    pytest.param(SEEDS[1], ONE, None, marks=pytest.mark.full, id="one node"),
    pytest.param(SEEDS[3], SEVERAL, 6, marks=pytest.mark.full, id="several"),
    pytest.param(SEEDS[1] + ONE, 90_000, None, marks=pytest.mark.nightly, id="one node, many"),
    pytest.param(SEEDS[3] + SEVERAL, 10_000, 6, marks=pytest.mark.nightly, id="several, many"),
]


@pytest.mark.parametrize(("first", "count", "nodes"), PARTS)
def test_no_launch_of_thousands_is_broken(first: int, count: int, nodes: int | None):
    words = ["--first", str(first), "--seeds", str(count)]
    assert main([*words, "--nodes", str(nodes)] if nodes else words) == 0

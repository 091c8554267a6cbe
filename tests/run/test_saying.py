"""A sample of the random launches of tests/stress/saying.py."""

import random
from pathlib import Path

import pytest

from tests.stress import saying
from tests.support.matrix import mostly_full

SEED = 7


@pytest.mark.parametrize("number", mostly_full(range(8), 4))
def test_random_bytes_of_several_workers_are_accounted_for(number: int, tmp_path: Path):
    drawn = saying.draw(random.Random(f"{SEED}:{number}"), f"{SEED}:{number}")
    assert not saying.play(drawn, tmp_path), drawn

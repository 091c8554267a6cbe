"""Launches to each of which something seldom happens, as in one of four that are generated."""

import pytest

from tests.machine.generating import all_seldom
from tests.machine.play import play
from tests.machine.properties import broken
from tests.support.matrix import mostly_full

KINDS = all_seldom()


@pytest.mark.parametrize("seeds", mostly_full([range(8), range(8, 40)]), ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_no_launch_breaks_where_something_seldom_happens(kind: str, seeds: range):
    made = [KINDS[kind](seed) for seed in seeds]
    assert not {each.seed: found for each in made if (found := broken(play(each)))}

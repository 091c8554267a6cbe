"""Launches to each of which something seldom happens, as in one of four that are generated."""

import pytest

from tests.machine.generating import all_seldom
from tests.machine.play import play
from tests.machine.properties import broken

KINDS = all_seldom()


def _no_launch_breaks(kind: str, seeds: range) -> None:
    made = [KINDS[kind](seed) for seed in seeds]
    assert not {each.seed: found for each in made if (found := broken(play(each)))}


@pytest.mark.parametrize("kind", KINDS)
def test_no_launch_breaks_where_something_seldom_happens(kind: str):
    _no_launch_breaks(kind, range(8))


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_nor_does_any_of_the_next(kind: str):
    _no_launch_breaks(kind, range(8, 40))

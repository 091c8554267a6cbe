"""Launches to each of which something seldom happens, as in one of four that are generated."""

import pytest

from tests.machine.play import play
from tests.machine.properties import broken
from tests.machine.scenario import RARE, SELDOM, Kind, seldom

SEEDS = {True: 40, False: 25}
KINDS = [
    pytest.param(kind, is_alone, id=f"{kind.__name__} {'one node' if is_alone else 'several'}")
    for is_alone, kinds in SELDOM.items()
    for kind in dict.fromkeys(kinds + RARE[is_alone])
]


@pytest.mark.parametrize(("kind", "is_alone"), KINDS)
def test_no_launch_breaks_where_something_seldom_happens(kind: Kind, is_alone: bool):
    made = [
        seldom(kind, seed, None if is_alone else 2 + seed % 3) for seed in range(SEEDS[is_alone])
    ]
    assert not {each.seed: found for each in made if (found := broken(play(each)))}

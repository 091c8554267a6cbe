"""What the flags of a launch of several nodes come to."""

from __future__ import annotations

import pytest

from spawnlaunch.cli import parsing
from spawnlaunch.multinode.settings import Settings, settings_of
from spawnlaunch.world.identity import Gathering

TWO = Gathering("node0", "", 29400, 1, None, -1, 2, 2, 0, (), False, None, False, "node0", "", 0)


def settings(*flags: str) -> Settings:
    request = parsing.parse(["--nnodes=2", *flags], {}, "python")
    return settings_of(request, TWO, 30.0, None)


@pytest.mark.parametrize(
    ("flag", "lost_after_s"),
    [
        ("--quiet", 10),
        ("--lost-after=7", 7),
        ("--lost-after=0.2", 1),
        ("--rdzv-conf=keep_alive_interval=4", 12),
        ("--rdzv-conf=keep_alive_max_attempt=2", 10),
        ("--rdzv-conf=keep_alive_interval=4,keep_alive_max_attempt=2", 8),
        ("--rdzv-conf=keep_alive_interval=0.1,keep_alive_max_attempt=2", 1),
    ],
)
def test_a_node_is_lost_after_a_second_or_more(flag: str, lost_after_s: float) -> None:
    assert settings(flag).lost_after_s == lost_after_s


def test_of_thousands_each_beats_more_seldom() -> None:
    many = TWO._replace(most=4000, spares=4000)
    request = parsing.parse(["--nnodes=2"], {}, "python")
    assert settings_of(request, many, 30.0, None).beat_s == 4

"""What a worker of another node has written comes to a terminal as text."""

from __future__ import annotations

import pytest

from spawnlaunch.failures import Cause
from spawnlaunch.gang.words import ended, of_worker


@pytest.mark.parametrize("words", ["plain", "a\n\tb\r\n", "\x1b[1;31mred\x1b[0m", "höst"])
def test_text_lines_and_colours_stay(words: str) -> None:
    assert of_worker(words) == words


@pytest.mark.parametrize("words", ["\x1b[2J", "\x1b]0;title\x07", "\x9b2J", "\b", "\x00", "\x1b"])
def test_nothing_else_is_a_command(words: str) -> None:
    assert of_worker(f"a{words}b").isprintable()


def test_all_say_how_they_end_but_the_one_that_reports_a_failure() -> None:
    causes = Cause("signal", "b", code=-15), Cause("failure", "b", 0, 7)
    said = [bool(ended("a", 1, cause, has_hub)) for cause in causes for has_hub in (False, True)]
    assert said == [True, True, True, False]

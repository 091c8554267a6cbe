"""What is said of other nodes: the words of their workers as text, and many names in few."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.gang.words import ended, of_worker
from spawnlaunch.outcome import failures
from spawnlaunch.outcome.failures import Cause


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


@given(st.lists(st.text(), max_size=40, unique=True))
def test_all_names_are_counted_where_few_are_shown(hosts: list[str]) -> None:
    *shown, last = failures.shortened([*hosts, "last"])
    assert len(shown) < failures.MOST_NAMES
    more = int(last.removesuffix(failures.MORE)) if last.endswith(failures.MORE) else 1
    assert len(shown) + more == len(hosts) + 1

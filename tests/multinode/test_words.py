"""What is said of other nodes: the words of their workers as text, and many names in few."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.multinode.words import ended, of_worker
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


@given(st.sampled_from([1, 4]), st.sets(st.integers(0, 40), min_size=1), st.booleans())
def test_no_name_is_lost_where_many_are_folded(
    digits: int, numbers: set[int], has_others: bool
) -> None:
    hosts = {f"node{n:0{digits}}.site" for n in numbers}
    hosts |= {"login", "gpu-a"} if has_others else set()
    found = failures.folded([*hosts])
    assert len(found) <= failures.MOST_NAMES
    shown, more = set[str](), 0
    for text in found:
        if text.endswith(failures.MORE):
            more = int(text.removesuffix(failures.MORE))
        elif run := re.fullmatch(r"(.*)\[(\d+)-(\d+)\](.*)", text):
            before, low, high, after = run.groups()
            shown |= {f"{before}{n:0{len(low)}}{after}" for n in range(int(low), int(high) + 1)}
        else:
            shown.add(text)
    assert shown <= hosts
    assert len(shown) + more == len(hosts)

"""What a worker of another node has written comes to a terminal as text."""

from __future__ import annotations

import pytest

from spawnlaunch.gang.words import of_worker


@pytest.mark.parametrize("words", ["plain", "a\n\tb\r\n", "\x1b[1;31mred\x1b[0m", "höst"])
def test_text_lines_and_colours_stay(words: str) -> None:
    assert of_worker(words) == words


@pytest.mark.parametrize("words", ["\x1b[2J", "\x1b]0;title\x07", "\x9b2J", "\b", "\x00", "\x1b"])
def test_nothing_else_is_a_command(words: str) -> None:
    assert of_worker(f"a{words}b").isprintable()

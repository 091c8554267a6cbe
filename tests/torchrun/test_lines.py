"""A torchrun user's command line does the same here, or differs as docs/torchrun.md says."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.launching import ROOT
from tests.torchrun import warm
from tests.torchrun.differences import DIFFERENCES, wrong
from tests.torchrun.lines import LINES, SAMPLE, Line
from tests.torchrun.runner import run_both

PAGE = ROOT / "docs" / "torchrun.md"
ROWS = [pytest.param(each, marks=[] if each in SAMPLE else pytest.mark.full) for each in LINES]


@pytest.fixture(scope="module", autouse=True)
def _torchrun_ends() -> Iterator[None]:
    yield
    warm.stop()


@pytest.mark.parametrize("line", ROWS, ids=str)
def test_a_line_does_the_same(line: Line, tmp_path: Path) -> None:
    assert not wrong(run_both(line, tmp_path))


def test_each_difference_of_the_page_has_a_rule_and_a_line_that_shows_it() -> None:
    table = PAGE.read_text().partition("\n## Differences\n")[2].partition("\n## ")[0]
    of_page = re.findall(r"^\| ([^|]+?) +\|", table, re.MULTILINE)[1:]  # but the head
    shown = {name for line in LINES for name in line.shows.split(", ") if name}
    assert {*of_page} == {row.name for row in DIFFERENCES} == shown

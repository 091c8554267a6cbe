"""A torchrun user's command line does the same here, or differs as docs/torchrun.md says."""

import re
from pathlib import Path

import pytest

from tests.support.launching import ROOT
from tests.support.required import require_packages
from tests.torchrun.differences import DIFFERENCES, wrong
from tests.torchrun.lines import LINES, SAMPLE, Line, examples, two
from tests.torchrun.programs import CLIENTS, PROGRAMS
from tests.torchrun.runner import Both, Seen, run_both

require_packages("torch")
PAGE = ROOT / "docs" / "torchrun.md"
ROWS = [pytest.param(each, marks=[] if each in SAMPLE else pytest.mark.full) for each in LINES]


@pytest.mark.parametrize("line", ROWS, ids=str)
def test_a_line_does_the_same(line: Line, tmp_path: Path) -> None:
    assert not wrong(run_both(line, tmp_path))


WORKER = {"environ": {"RANK": "0", "MASTER_PORT": "1"}, "argv": ["train.py", "a"], "cwd": "{dir}",
          "signals": [], "streams": ["device", "pipe or file", "pipe or file"]}  # fmt: skip
FILES = {"logs/R/attempt_0/0/stdout.log": "x"}
SEEN = Seen([0], "out of 0", "err of 0", {"0.0": WORKER}, FILES, None)


def test_a_row_that_a_line_is_to_show_and_does_not_is_wrong() -> None:
    (said,) = wrong(Both(two("", shows="node rank"), SEEN, SEEN))
    assert said == "'node rank' is not seen"


def test_the_examples_in_torchruns_usage_are_among_them() -> None:
    assert [each.launchers for each in examples()] == [1, 1, 2, 4]


def test_the_page_says_how_many_lines_and_programs_are_compared() -> None:
    said = f"run {len(LINES)} command lines and {len(PROGRAMS) + len(CLIENTS)} programs"
    assert said in PAGE.read_text()


def test_each_difference_of_the_page_has_a_rule_and_a_line_that_shows_it() -> None:
    table = PAGE.read_text().partition("\n## Differences\n")[2].partition("\n## ")[0]
    of_page = re.findall(r"^\| ([^|]+?) +\|", table, re.MULTILINE)[1:]  # but the head
    shown = {row for line in LINES for row in line.rows}
    assert {*of_page} == {row.name for row in DIFFERENCES} == shown

"""Programs that people start with torchrun do the same here, also when somebody is killed."""

import random
import re
from pathlib import Path

import pytest

from tests.corpus import faults
from tests.corpus.page import PAGE, is_expected, result
from tests.corpus.running import come_both
from tests.corpus.table import PROGRAMS, SCRIPTS, Program, described
from tests.dropin.differences import DIFFERENCES

SEED = 1
ROWS = [
    pytest.param(
        each, id=each.name, marks=pytest.mark.nightly if each.is_client else pytest.mark.full
    )
    for each in PROGRAMS
]


@pytest.mark.parametrize("program", ROWS)
def test_a_program_does_the_same(program: Program, tmp_path: Path) -> None:
    theirs, ours = come_both(program, tmp_path)
    assert is_expected(program, result(theirs, ours)), (theirs, ours)


@pytest.mark.full
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("number", range(6))
def test_a_fault_does_no_more_than_under_torchrun(number: int) -> None:
    drawn = faults.draw(random.Random(f"{SEED}:{number}"))
    words, wrong = faults.judged(drawn)
    assert not wrong, (str(drawn), words)


def test_the_page_has_a_row_for_each_program_and_no_other() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [each.name for each in PROGRAMS]
    for program in PROGRAMS:
        what, source = described(program)
        assert f"| `{program.name}` | {what} | {source} |" in table
    assert "**" not in table  # what differs without a reason


def test_what_differs_has_its_row_among_the_differences() -> None:
    named = {row for program in PROGRAMS for row in program.differs.values()}
    assert named <= {row.name for row in DIFFERENCES}


def test_each_script_is_started_by_some_program() -> None:
    lines = "".join(program.line for program in PROGRAMS)
    scripts = {file.name for file in SCRIPTS.glob("*.*")}
    assert scripts == {name for name in scripts if f"{{here}}/{name}" in lines}

"""The rows of differences hold through a pipe and on a terminal; see tests/slurm/test_dropin.py."""

import sys
from pathlib import Path

import pytest

from tests.dropin.around import WITNESSES
from tests.dropin.differences import DIFFERENCES
from tests.dropin.launches import PIPE, TERMINAL
from tests.support.launching import run

AROUND = (sys.executable, "-m", "tests.dropin.around")
LONGEST_S = 1000.0  # of thirty lines under each launcher
pytestmark = pytest.mark.timeout(1200)


def test_each_row_has_a_line_that_shows_it() -> None:
    assert WITNESSES.keys() == {row.name for row in DIFFERENCES}


@pytest.mark.full
@pytest.mark.parametrize("around", [PIPE, TERMINAL])
def test_the_rows_hold(around: str, tmp_path: Path) -> None:
    done = run(*AROUND, tmp_path, around, timeout_s=LONGEST_S)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr

"""Programs that people start with torchrun do the same here."""

import pytest

from tests.support.required import require_packages
from tests.torchrun.differences import wrong
from tests.torchrun.lines import SCRIPTS, Line
from tests.torchrun.programs import CLIENTS, PROGRAMS
from tests.torchrun.runner import run_both

require_packages("torch")
ROWS = [
    pytest.param(each, id=each.script, marks=mark)
    for lines, mark in ((PROGRAMS, pytest.mark.full), (CLIENTS, pytest.mark.nightly))
    for each in lines
]


@pytest.mark.parametrize("line", ROWS)
def test_a_program_does_the_same(line: Line, tmp_path_factory: pytest.TempPathFactory) -> None:
    require_packages(*line.needs, group="nightly")
    # A short name: multiprocessing binds a socket below it, and unix(7) allows 107 characters.
    both = run_both(line, tmp_path_factory.mktemp("p"))
    assert not wrong(both), (both.theirs.stderr, both.ours.stderr)
    assert any(both.ours.files.values()), "what the ranks have printed"


def test_each_script_is_started_by_a_line() -> None:
    assert {file.stem for file in SCRIPTS.iterdir() if file.suffix} == {
        each.script for each in (*PROGRAMS, *CLIENTS)
    }

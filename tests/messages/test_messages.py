"""Every error says what was seen, why it cannot be and what to type; and what is typed works."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.messages import of_flags, of_the_run, of_the_world
from tests.messages.row import Row, typed
from tests.messages.sites import sites
from tests.support.launching import ROOT, clean_environ, open_mpi, run
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_ports
from tests.support.required import require_programs, require_root

require_programs("mpirun", package="openmpi-bin")
require_programs("unshare", package="util-linux")
require_root()

ROWS = [*of_flags.ROWS, *of_the_world.ROWS, *of_the_run.ROWS]
pytestmark = pytest.mark.timeout(1200)  # all lines are typed before the first test


def typed_in(directory: Path, row: Row, *, wrong: bool) -> subprocess.CompletedProcess[str]:
    """What a shell comes to in which the wrong line of a row is typed, or the right one."""
    before, line = (row.prepare, row.wrong) if wrong else (row.mend, row.right)
    ways = f"{directory / 'bin'}:{os.environ['PATH']}"
    environ = clean_environ(PATH=ways, **{"PYTHONPATH": str(ROOT), **row.environ})
    environ |= open_mpi(directory)
    environ["PYTHONPATH"] = f"{ROOT}:{environ['PYTHONPATH']}"
    environ |= zip(("PORT", "PORT2"), map(str, free_ports(2)), strict=True)
    return run(
        "bash",
        "-c",
        f"{before}\n{typed(line)}",
        cwd=directory,
        environ=environ,
        timeout_s=PATIENCE_S,
    )


def furnish(directory: Path) -> Path:
    """A directory as Row describes it, with a `python` that is this one."""
    (directory / "bin").mkdir(parents=True)
    python = directory / "bin/python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (directory / "x.py").write_text("")
    (directory / "hosts").write_text("localhost slots=1\n")
    cpus = directory / "two/sys/devices/system/cpu"
    cpus.mkdir(parents=True)
    (cpus / "online").write_text("0-7\n")
    for number in (1, 2):
        device = directory / f"two/sys/bus/pci/devices/0000:0{number}:00.0"
        device.mkdir(parents=True)
        (device / "class").write_text("0x030200\n")
        (device / "vendor").write_text("0x10de\n")
    return directory


class Shell(NamedTuple):
    """What came of a line."""

    status: int
    stderr: str


class Typist:
    """Types the lines of all rows, those of each in a directory of its own."""

    def __init__(self, base: Path) -> None:
        self._base = base

    def type(self, *, wrong: bool) -> dict[int, Shell]:
        """What came of each row's line, by the row's id()."""
        with ThreadPoolExecutor(4) as pool:
            done = pool.map(lambda numbered: self._type(*numbered, wrong=wrong), enumerate(ROWS))
            return dict(zip(map(id, ROWS), done, strict=True))

    def _type(self, number: int, row: Row, *, wrong: bool) -> Shell:
        directory = self._base / str(number)
        done = typed_in(furnish(directory) if wrong else directory, row, wrong=wrong)
        return Shell(done.returncode, done.stderr)


@pytest.fixture(scope="module")
def typist(tmp_path_factory: pytest.TempPathFactory) -> Typist:
    return Typist(tmp_path_factory.mktemp("messages"))


@pytest.fixture(scope="module")
def refused(typist: Typist) -> dict[int, Shell]:
    return typist.type(wrong=True)


@pytest.fixture(scope="module")
def accepted(typist: Typist, refused: dict[int, Shell]) -> dict[int, Shell]:
    """The right lines are typed where the wrong ones were."""
    assert len(refused) == len(ROWS)
    return typist.type(wrong=False)


def of(row: Row) -> str:
    return f"{row.seen[:40]} {row.why[:30]}"


@pytest.mark.parametrize("row", ROWS, ids=of)
def test_an_error_says_what_was_seen_why_and_what_to_type(row: Row, refused: dict[int, Shell]):
    status, stderr = refused[id(row)]
    assert status == row.status, stderr
    assert all(row[1:4])
    lines = [line for line in stderr.splitlines() if all(part in line for part in row[1:4])]
    assert len(lines) == 1, stderr
    assert lines[0].startswith("spawnlaunch: ")


@pytest.mark.full
@pytest.mark.parametrize("row", ROWS, ids=of)
def test_what_it_says_to_type_works(row: Row, accepted: dict[int, Shell]):
    status, stderr = accepted[id(row)]
    assert status == 0, stderr
    assert row.why not in stderr


# What only a broken machine brings about: a table cannot.
NOT_HERE = {
    "a shell of a Flux instance": "tests/world/test_copies.py, below a broker",
    "has lost Slurm's variables": "tests/world/test_slurm_ranks.py, in a batch script",
    "internal error": "a fault of ours",
    "cannot start: ": "likewise, in the child that becomes a worker",
    "a debugger holds": "tests/run/test_stopped.py",
    "a process that imports it": "no process can be forked: root, who runs the tests, always may",
    "the system refuses files in memory": "tests/run/test_refused_calls.py",
    "; type rm -r ": "likewise, where two calls are refused",
    "cannot write to our": "tests/run/test_lost_output.py",
    "host number ": "the launcher asks for the first host only",
}


def test_every_place_that_words_an_error_has_a_row(refused: dict[int, Shell]):
    said = [line for shell in refused.values() for line in shell.stderr.splitlines()]
    elsewhere = [re.escape(part) for part in NOT_HERE]
    here = [site for site in sites() if not any(part in site.pattern for part in elsewhere)]
    assert [site for site in here if not any(map(site.words, said))] == []

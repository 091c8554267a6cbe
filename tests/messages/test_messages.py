"""Every error says what was seen, why it cannot be and what to type; and what is typed works.

A line of flags alone is read in this process, where its error is made. One that needs a shell, or a
launch that has begun, is typed: that is `full`.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spawnlaunch import walk
from spawnlaunch.base.errors import UsageError
from spawnlaunch.cli.flags import Page
from tests.messages import of_flags, of_the_run, of_the_world
from tests.messages.row import SHELL, Row, typed
from tests.messages.sites import sites
from tests.support.launching import ROOT, clean_environ, open_mpi, run
from tests.support.ports import free_ports
from tests.support.required import require_programs, require_root

ROWS = [*of_flags.ROWS, *of_the_world.ROWS, *of_the_run.ROWS]
PLAIN = [row for row in ROWS if row.is_read_here(row.wrong, row.prepare)]
TYPED = [row for row in ROWS if row not in PLAIN]
MENDED_HERE = [row for row in PLAIN if row.is_read_here(row.right, row.mend)]
MENDED_IN_A_SHELL = [row for row in PLAIN if row not in MENDED_HERE]


def name(row: Row) -> str:
    return f"{row.seen[:40]} {row.why[:30]}"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return furnish(tmp_path)


def furnish(directory: Path) -> Path:
    """Make the directory as Row describes it, with a `python` that is this one."""
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
    wsl = directory / "wsl"
    for file in ("sys/devices/system/cpu/online", "dev/dxg"):
        (wsl / file).parent.mkdir(parents=True)
        (wsl / file).write_text("0-7\n")
    return directory


def environ_of(row: Row, directory: Path) -> dict[str, str]:
    ports = zip(("PORT", "PORT2"), map(str, free_ports(2)), strict=True)
    ways = f"{directory / 'bin'}:{os.environ['PATH']}"
    path = ":".join(filter(None, (str(ROOT), row.environ.get("PYTHONPATH"))))
    return clean_environ(
        **{**open_mpi(directory), "PATH": ways, **row.environ, "PYTHONPATH": path, **dict(ports)}
    )


@pytest.fixture
def here(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "environ", os.environ.copy())
        yield directory


def error_of(line: str, row: Row, directory: Path) -> str:
    """Return the error with which a line of flags is refused; "" where it shows its plan."""
    environ, before = environ_of(row, directory), os.environ.copy()
    os.environ.clear()
    os.environ.update(environ)
    words = [os.path.expandvars(word) for word in shlex.split(line)]
    try:
        walk.walk(["--explain", *words], environ, (), frozenset())
    except UsageError as error:
        return str(error)
    except Page:
        return ""
    finally:  # the next row has none of it
        os.environ.clear()
        os.environ.update(before)
    raise AssertionError(f"{line} has launched something")


def has_its_parts(error: str, row: Row) -> bool:
    assert all((row.seen, row.why, row.do))
    return all(part in error for part in (row.seen, row.why, row.do))


@pytest.mark.parametrize("row", PLAIN, ids=name)
def test_an_error_has_a_fact_a_reason_and_a_remedy(row: Row, here: Path) -> None:
    error = error_of(row.wrong, row, here)
    assert "\n" not in error
    assert has_its_parts(error, row), error


@pytest.mark.parametrize("row", MENDED_HERE, ids=name)
def test_the_remedy_works(row: Row, here: Path) -> None:
    assert error_of(row.right, row, here) == ""


def type_in(directory: Path, row: Row, before: str, line: str) -> subprocess.CompletedProcess[str]:
    """Type a line of a row into a shell, after what comes before it."""
    script = f"{before}\n{typed(line)}"
    return run("bash", "-c", script, cwd=directory, environ=environ_of(row, directory))


@pytest.fixture
def shell(directory: Path) -> Path:
    require_programs("mpirun", package="openmpi-bin")
    require_programs("unshare", package="util-linux")
    require_root()
    return directory


@pytest.mark.full
@pytest.mark.parametrize("row", TYPED, ids=name)
def test_the_error_of_a_line_in_a_shell_has_a_remedy_that_works(row: Row, shell: Path) -> None:
    wrong = type_in(shell, row, row.prepare, row.wrong)
    assert wrong.returncode == row.status, wrong.stderr
    lines = [line for line in wrong.stderr.splitlines() if has_its_parts(line, row)]
    assert len(lines) == 1, wrong.stderr
    assert lines[0].startswith("spawnlaunch: ")
    right = type_in(shell, row, row.mend, row.right)
    assert right.returncode == 0, right.stderr
    assert row.why not in right.stderr


@pytest.mark.full
@pytest.mark.parametrize("row", MENDED_IN_A_SHELL, ids=name)
def test_the_remedy_works_in_a_shell(row: Row, shell: Path) -> None:
    type_in(shell, row, row.prepare, row.wrong)
    right = type_in(shell, row, row.mend, row.right)
    assert right.returncode == 0, right.stderr
    assert row.why not in right.stderr


def test_a_line_to_run_begins_with_the_command_as_the_user_called_it(directory: Path) -> None:
    script = directory / "bin/spawnlaunch"
    main = "import sys; from spawnlaunch.__main__ import main; sys.exit(main())"
    script.write_text(f"#!{sys.executable}\n{main}\n")
    script.chmod(0o755)
    row = Row("$ spawnlaunch --nproc 2 x.py", "srun", "is missing", "run", "", SHELL)
    error = type_in(directory, row, ":", row.wrong).stderr
    assert error.endswith("for this machine alone: spawnlaunch --standalone --nproc=2 x.py\n")


# What only a broken machine brings about: a table cannot.
NOT_HERE = {
    "internal error": "a fault of ours",
    "cannot start: ": "likewise, in the child that becomes a worker",
    "needs shtab": "tests/test_completion.py, without it",
    "a debugger holds": "tests/run/test_stopped.py",
    "a process that imports it": "no process can be forked: root, who runs the tests, always may",
    "the system refuses files in memory": "tests/run/test_refused_calls.py",
    "; run rm -r ": "likewise, where two calls are refused",
    "cannot write to our": "tests/output/test_lost_output.py",
    "no CPU is visible here": "tests/world/test_by_word.py, where none is shown",
    "host number ": "the launcher asks for the first host only",
}


@pytest.mark.full
@pytest.mark.usefixtures("shell")
def test_every_place_that_words_an_error_has_a_row(here: Path) -> None:
    lines = []
    for number, row in enumerate(TYPED):
        furnish(here / str(number))
        lines += type_in(here / str(number), row, row.prepare, row.wrong).stderr.splitlines()
    lines += [error_of(row.wrong, row, here) for row in PLAIN]
    elsewhere = [re.escape(part) for part in NOT_HERE]
    places = [site for site in sites() if not any(part in site.pattern for part in elsewhere)]
    assert [site for site in places if not any(map(site.words, lines))] == []

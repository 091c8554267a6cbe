"""What others do while a launch runs, or had done before: what was right stays right."""

import os
import shutil
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.support.launching import ROOT
from tests.support.matrix import mostly_full
from tests.support.watching import launched

WELL, FAILS = "exit 0", "exit 3"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package, as pip would have installed it."""
    leave = shutil.ignore_patterns("__pycache__", "bench", "train")
    return Path(shutil.copytree(ROOT / "spawnlaunch", tmp_path / "lib/spawnlaunch", ignore=leave))


def of_package(package: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    """The launcher of that copy, and its environment."""
    environ = {"PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    return (sys.executable, "-m", "spawnlaunch", "--prefix=never"), environ


def remove(package: Path, _scratch: Path) -> None:
    shutil.rmtree(package)


def replace(package: Path, _scratch: Path) -> None:
    for file in package.rglob("*.py"):
        file.write_text("OTHER_VERSION = 1\n")


def clean(_package: Path, scratch: Path) -> None:
    for each in scratch.glob("spawnlaunch-*"):
        shutil.rmtree(each)


DISTURBED = {each.__name__: each for each in (remove, replace, clean)}
WAYS = {
    "restarts": ("--nproc", 2, "--max-restarts", 1, "--tee", 3, "--log-dir", "logs"),
    "one worker": ("--nproc", 1),
    "two workers": ("--nproc", 2),
    "files": ("--nproc", 2, "--tee", 3, "--log-dir", "logs", "--result", "result"),
    "hangs": ("--nproc", 2, "--hang-timeout", 1),
    "a record": ("--nproc", 2, "--record", "record"),
}
# Who fails needs all that who ends well needs, and more.
CASES = [*product(DISTURBED, WAYS, (FAILS,)), *product(DISTURBED, ("files",), (WELL,))]


@pytest.mark.parametrize(("how", "way", "then"), mostly_full(CASES))
def test_status_and_report_are_those_of_the_workers(
    how: str, way: str, then: str, package: Path, tmp_path: Path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    worker = f"echo ready; until test -e go; do sleep 0.1; done; {then}"
    words = (*WAYS[way], "--no-python", "sh", "-c", worker)
    command, environ = of_package(package)
    with launched(*words, directory=tmp_path, environ=environ, command=command) as one:
        one.read_until(1)
        DISTURBED[how](package, tmp_path / "tmp")
        Path("go").touch()
        assert one.status() == int(then.split()[1]), one.stderr
        assert "Traceback" not in one.stderr
        assert ("exited with status 3" in one.stderr) == (then == FAILS)


# As the launcher asks for the module of its decisions, the package is removed.
AT_THE_IMPORT = """
import shutil, sys

def removes(event, arguments):
    if event == "import" and arguments[0] == "spawnlaunch.run.decisions":
        shutil.rmtree({package!r}, ignore_errors=True)

sys.addaudithook(removes)
"""


def test_a_package_that_is_removed_while_it_is_read_is_said_in_one_line(package: Path, tmp_path):
    code = AT_THE_IMPORT.format(package=str(package))
    (package.parent / "sitecustomize.py").write_text(code)
    command, environ = of_package(package)
    words = ("--nproc", 2, "--no-python", "sh", "-c", FAILS)
    command = ("env", "-C", str(tmp_path), *command)
    with launched(*words, directory=tmp_path, environ=environ, command=command) as one:
        assert one.status() == os.EX_OSERR, one.stderr
        assert "Traceback" not in one.stderr
        assert "fault of spawnlaunch" not in one.stderr
        assert "replaced or removed" in one.stderr


@pytest.mark.parametrize("script", mostly_full([FAILS, WELL]))
def test_warnings_that_are_errors_and_a_umask_that_allows_nothing_change_nothing(
    script: str, tmp_path: Path
):
    place = ("--tee", 3, "--log-dir", tmp_path / "logs", "--result", tmp_path / "result")
    words = ("--nproc", 2, "--max-restarts", 1, *place, "--no-python", "sh", "-c", script)
    options = {"environ": {"PYTHONWARNINGS": "error"}, "preexec": lambda: os.umask(0o777)}
    with launched(*words, directory=tmp_path, **options) as one:
        assert one.status() == int(script.split()[1]), one.stderr
        assert "Warning" not in one.stderr
        assert "Traceback" not in one.stderr

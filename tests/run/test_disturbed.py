"""What others do while a launch runs, or had done before: what was right stays right."""

import glob
import os
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.launching import ROOT, WORKERS, clean_environ, launch, run
from tests.support.processes import children, until
from tests.support.watching import Launch, launched

WELL, FAILS = "exit 0", "exit 3"
SETTLED = "memfd:spawnlaunch-said"  # among a guard's files, once it has what its end needs


def remove(package: Path, _scratch: Path) -> None:
    shutil.rmtree(package)


def replace(package: Path, _scratch: Path) -> None:
    for file in package.rglob("*.py"):
        file.write_text("OTHER_VERSION = 1\n")


def clean(_package: Path, scratch: Path) -> None:
    for each in scratch.glob("spawnlaunch-*"):
        shutil.rmtree(each)


def settled(launcher: int) -> bool:
    """Whether the guard, which is one of the launcher's children, has what its end needs."""
    for file in (file for child in children(launcher) for file in glob.glob(f"/proc/{child}/fd/*")):
        with suppress(FileNotFoundError):  # it is closed meanwhile
            if SETTLED in os.readlink(file):
                return True
    return False


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package, as pip would have installed it."""
    leave = shutil.ignore_patterns("__pycache__", "bench", "train")
    return Path(shutil.copytree(ROOT / "spawnlaunch", tmp_path / "lib/spawnlaunch", ignore=leave))


DISTURBED = [remove, replace, clean]
WAYS = {
    "one worker": ("--nproc", 1),
    "two workers": ("--nproc", 2),
    "files": ("--nproc", 2, "--tee", 3, "--log-dir", "logs", "--result", "result"),
    "restarts": ("--nproc", 2, "--max-restarts", 1, "--tee", 3, "--log-dir", "logs"),
    "hangs": ("--nproc", 2, "--hang-timeout", 1),
    "a record": ("--nproc", 2, "--record", "record"),
}
QUICK = {("two workers", FAILS), ("restarts", FAILS), ("one worker", WELL)}


def disturbed(
    words: tuple[object, ...], script: str, disturb: Callable[[Path, Path], None], package: Path,
    tmp_path: Path, then: Callable[[Launch], None] = lambda _: None,
) -> tuple[int, str]:  # fmt: skip
    """Status and stderr of a launch that is disturbed once its workers run."""
    go = tmp_path / "go"
    worker = f"echo ready; until test -e {go}; do sleep 0.1; done; {script}"
    environ = {"PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    command = (sys.executable, "-m", "spawnlaunch", "--no-prefix")
    os.chdir(tmp_path)
    with launched(
        *words, "--no-python", "sh", "-c", worker,
        directory=tmp_path, environ=environ, command=command,
    ) as one:  # fmt: skip
        one.read_until(1)
        until(lambda: settled(one.pid), "the guard has what its end needs")
        disturb(package, tmp_path / "tmp")
        go.touch()
        then(one)
        return one.status(), one.stderr


@pytest.mark.parametrize(
    ("disturb", "way", "script"),
    [
        pytest.param(each, way, script, marks=[] if (way, script) in QUICK else pytest.mark.full)
        for each in DISTURBED
        for way in WAYS
        for script in (WELL, FAILS)
    ],
)
def test_status_and_report_are_those_of_the_workers(
    disturb: Callable[[Path, Path], None], way: str, script: str, package: Path, tmp_path: Path
):
    status, stderr = disturbed(WAYS[way], script, disturb, package, tmp_path)
    assert status == int(script.split()[1]), stderr
    assert "Traceback" not in stderr, stderr
    assert ("exited with status 3" in stderr) == (script == FAILS)


@pytest.mark.parametrize("disturb", [remove, pytest.param(replace, marks=pytest.mark.full)])
def test_a_killed_guard_is_told_of_all_the_same(
    disturb: Callable[[Path, Path], None], package: Path, tmp_path: Path
):
    def later(package: Path, scratch: Path) -> None:
        signal.sigtimedwait((), 3)  # the launcher has what its end needs too, a second after it
        disturb(package, scratch)

    status, stderr = disturbed(
        ("--nproc", 2, "--result", tmp_path / "result"), "sleep 600", later, package, tmp_path,
        then=lambda one: one.send(signal.SIGKILL, one.guard),
    )  # fmt: skip
    assert status == 128 + signal.SIGKILL, stderr
    assert "died of SIGKILL: ended the workers" in stderr
    assert '"guard"' in (tmp_path / "result").read_text()


# As somebody asks for this module for the first time, the package changes.
AT_THE_IMPORT = """
import shutil, sys
from pathlib import Path

def changes(event, arguments):
    if event == "import" and arguments[0] == {module!r}:
        if {is_removed}:
            shutil.rmtree({package!r}, ignore_errors=True)
        for file in Path({package!r}).rglob("*.py"):
            file.write_text("OTHER_VERSION = 1")

sys.addaudithook(changes)
"""


@pytest.mark.parametrize("is_removed", [True, False])
@pytest.mark.parametrize(
    ("module", "script", "status"),
    [
        ("spawnlaunch.flags", WELL, os.EX_OSERR),
        ("spawnlaunch.run.launcher", WELL, os.EX_OSERR),
        ("spawnlaunch.run.decisions", WELL, os.EX_OSERR),
        ("spawnlaunch.run.evidence", FAILS, os.EX_OSERR),
        ("spawnlaunch.run.published", f"sleep 1.5; {WELL}", 0),
    ],
)
def test_a_package_that_changes_before_all_is_read_is_said_in_one_line(
    module: str, script: str, status: int, is_removed: bool, package: Path, tmp_path: Path
):
    code = AT_THE_IMPORT.format(module=module, package=str(package), is_removed=is_removed)
    (package.parent / "sitecustomize.py").write_text(code)
    environ = {"PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    with launched(
        "--nproc", 2, "--no-python", "sh", "-c", script, directory=tmp_path, environ=environ,
        command=("env", "-C", str(tmp_path), sys.executable, "-m", "spawnlaunch"),
    ) as one:  # fmt: skip
        assert one.status() == status, one.stderr
        assert "Traceback" not in one.stderr
        assert "fault of spawnlaunch" not in one.stderr
        assert ("replaced or removed" in one.stderr) == (status != 0), one.stderr


@pytest.mark.full
@pytest.mark.parametrize("is_removed", [True, False])
@pytest.mark.parametrize("module", ["find", "output", "waiting"])
def test_a_package_that_changes_while_the_recorder_reads_it_ends_the_record_alone(
    module: str, is_removed: bool, package: Path, tmp_path: Path
):
    name = f"spawnlaunch.watch.{module}"
    code = AT_THE_IMPORT.format(module=name, package=str(package), is_removed=is_removed)
    (package.parent / "sitecustomize.py").write_text(code)
    environ = {"PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    with launched(
        *("--nproc", 2, "--record", "record", "--no-python", "sh", "-c", f"sleep 3; {WELL}"),
        directory=tmp_path, environ=environ,
        command=("env", "-C", str(tmp_path), sys.executable, "-m", "spawnlaunch"),
    ) as one:  # fmt: skip
        status = one.status()
        assert status in (0, os.EX_OSERR), one.stderr  # the launch itself reads on for a second
        assert "Traceback" not in one.stderr, one.stderr
        assert "replaced or removed" in one.stderr, one.stderr


@pytest.mark.parametrize("script", [WELL, FAILS])
def test_warnings_that_are_errors_are_not_ours(script: str, tmp_path: Path):
    words = ("--nproc", 2, "--max-restarts", 1, "--no-python", "sh", "-c", script)
    with launched(*words, directory=tmp_path, environ={"PYTHONWARNINGS": "error"}) as one:
        assert one.status() == int(script.split()[1]), one.stderr
        assert "Warning" not in one.stderr
        assert "Traceback" not in one.stderr


@pytest.mark.parametrize("script", [WELL, FAILS])
def test_a_umask_that_allows_nothing_changes_nothing(script: str, tmp_path: Path):
    words = ("--nproc", 2, "--tee", 3, "--log-dir", tmp_path / "logs", "--result", tmp_path / "r")
    with launched(
        *words, "--no-python", "sh", "-c", script,
        directory=tmp_path, preexec=lambda: os.umask(0o777),
    ) as one:  # fmt: skip
        assert one.status() == int(script.split()[1]), one.stderr
        assert "Traceback" not in one.stderr


# Whatever a launch may import of Python's, but for what `python -m` imports before it runs it.
SHADOWED = (
    *("signal", "json", "typing", "enum", "select", "struct", "ctypes", "socket", "random"),
    *("pickle", "traceback", "threading", "shutil", "resource", "zlib", "datetime", "argparse"),
    *("re", "string", "termios", "fcntl", "pwd"),
)


@pytest.mark.parametrize("words", [(), ("--preload", "decimal")])
def test_modules_of_pythonpath_with_the_names_of_pythons_are_not_for_us(words, tmp_path: Path):
    for name in SHADOWED:
        (tmp_path / f"{name}.py").write_text("raise ValueError('of the user')\n")
    script = tmp_path / "fails.sh"
    program = (WORKERS / "sleep.py",) if words else ("--no-python", "sh", script)
    script.write_text("sleep 1.5; exit 3\n")
    environ = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    place = ("--tee", 3, "--log-dir", tmp_path / "logs", "--result", tmp_path / "result")
    with launched(
        "--nproc", 2, *place, *words, *program, directory=tmp_path, environ=environ
    ) as one:
        if words:
            one.read_until(2)
            one.send(signal.SIGTERM)
        assert one.status() == (143 if words else 3), one.stderr
        assert "of the user" not in one.stderr


@pytest.mark.parametrize("words", [("report", "record"), ("scripts",), ("top", "--once")])
def test_nor_are_they_for_the_programs_beside_a_launch(words: tuple[str, ...], tmp_path: Path):
    for name in SHADOWED:
        (tmp_path / f"{name}.py").write_text("raise ValueError('of the user')\n")
    environ = clean_environ(PYTHONPATH=f"{tmp_path}:{ROOT}")
    recorded = launch("--record", "record", "--no-python", "true", environ=environ, cwd=tmp_path)
    done = run(
        sys.executable, "-m", f"spawnlaunch.{words[0]}", *words[1:], environ=environ, cwd=tmp_path
    )
    for one in (recorded, done):
        assert one.returncode == 0, one.stderr
        assert "of the user" not in one.stderr

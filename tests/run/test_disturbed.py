"""What others do while a launch runs, or had done before: what was right stays right."""

import glob
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.launching import ROOT, WORKERS, clean_environ, launch, run
from tests.support.matrix import mostly_full
from tests.support.processes import children, until
from tests.support.watching import launched

WELL, FAILS = "exit 0", "exit 3"
SETTLED = "memfd:spawnlaunch-said"  # among a guard's files, once it has what its end needs


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


def of_package(package: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    """The launcher of that copy, and its environment."""
    environ = {"PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    return (sys.executable, "-m", "spawnlaunch", "--no-prefix"), environ


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
    "one worker": ("--nproc", 1),
    "two workers": ("--nproc", 2),
    "files": ("--nproc", 2, "--tee", 3, "--log-dir", "logs", "--result", "result"),
    "restarts": ("--nproc", 2, "--max-restarts", 1, "--tee", 3, "--log-dir", "logs"),
    "hangs": ("--nproc", 2, "--hang-timeout", 1),
    "a record": ("--nproc", 2, "--record", "record"),
}
QUICK = [("remove", "restarts", FAILS)]
EVERY = [(how, way, then) for way in WAYS for how in DISTURBED for then in (FAILS, WELL)]


@pytest.mark.parametrize(
    ("how", "way", "then"),
    mostly_full([*QUICK, *(each for each in EVERY if each not in QUICK)], len(QUICK)),
)
def test_status_and_report_are_those_of_the_workers(
    how: str, way: str, then: str, package: Path, tmp_path: Path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    worker = f"echo ready; until test -e go; do sleep 0.1; done; {then}"
    words = (*WAYS[way], "--no-python", "sh", "-c", worker)
    command, environ = of_package(package)
    with launched(*words, directory=tmp_path, environ=environ, command=command) as one:
        one.read_until(1)
        until(lambda: settled(one.pid), "the guard has what its end needs")
        DISTURBED[how](package, tmp_path / "tmp")
        Path("go").touch()
        assert one.status() == int(then.split()[1]), one.stderr
        assert "Traceback" not in one.stderr
        assert ("exited with status 3" in one.stderr) == (then == FAILS)


@pytest.mark.parametrize("how", mostly_full(["remove", "replace"]))
def test_a_killed_guard_is_told_of_all_the_same(how: str, package: Path, tmp_path: Path):
    result = tmp_path / "result"
    words = ("--nproc", 2, "--result", result, WORKERS / "sleep.py")
    command, environ = of_package(package)
    with launched(*words, directory=tmp_path, environ=environ, command=command) as one:
        one.read_until(2)
        until(lambda: settled(one.pid), "the guard has what its end needs")
        time.sleep(3)  # the launcher has what its end needs too, a second after it
        DISTURBED[how](package, tmp_path)
        one.send(signal.SIGKILL, one.guard)
        assert one.status() == 128 + signal.SIGKILL, one.stderr
        assert "died of SIGKILL: ended the workers" in one.stderr
    assert '"guard"' in result.read_text()


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


LASTS = f"sleep 3; {WELL}"
FIRST_READ = ("flags", "run.launcher", "run.decisions", "run.evidence")
WHILE_IT_READS = [
    *((name, FAILS, (os.EX_OSERR,)) for name in reversed(FIRST_READ)),
    ("run.published", f"sleep 1.5; {WELL}", (0,)),
    # Of the recorder; but the launch itself reads on for a second.
    *((f"watch.{each}", LASTS, (0, os.EX_OSERR)) for each in ("find", "output", "waiting")),
]


@pytest.mark.parametrize(
    ("module", "script", "statuses", "is_removed"),
    mostly_full([(*row, is_removed) for is_removed in (True, False) for row in WHILE_IT_READS]),
)
def test_a_package_that_changes_while_it_is_read_is_said_in_one_line(
    module: str, script: str, statuses: tuple[int, ...], is_removed: bool, package: Path, tmp_path
):
    name = f"spawnlaunch.{module}"
    code = AT_THE_IMPORT.format(module=name, package=str(package), is_removed=is_removed)
    (package.parent / "sitecustomize.py").write_text(code)
    flags = ("--record", "record") if "watch" in module else ()
    words = ("--nproc", 2, *flags, "--no-python", "sh", "-c", script)
    command, environ = of_package(package)
    command = ("env", "-C", str(tmp_path), *command)
    with launched(*words, directory=tmp_path, environ=environ, command=command) as one:
        assert one.status() in statuses, one.stderr
        assert "Traceback" not in one.stderr
        assert "fault of spawnlaunch" not in one.stderr
        assert ("replaced or removed" in one.stderr) == (module != "run.published"), one.stderr


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


# Whatever a launch may import of Python's, but for what `python -m` imports before it runs it.
SHADOWED = (
    *("signal", "json", "typing", "enum", "select", "struct", "ctypes", "socket", "random"),
    *("pickle", "traceback", "threading", "shutil", "resource", "zlib", "datetime", "argparse"),
    *("re", "string", "termios", "fcntl", "pwd"),
)


@pytest.fixture
def shadowed(tmp_path: Path) -> dict[str, str]:
    """The environment where modules of these names are found before Python's."""
    for name in SHADOWED:
        (tmp_path / f"{name}.py").write_text("raise ValueError('of the user')\n")
    return {"PYTHONPATH": f"{tmp_path}:{ROOT}"}


def test_modules_of_pythonpath_with_the_names_of_pythons_are_not_for_us(shadowed, tmp_path: Path):
    script = tmp_path / "fails.sh"
    script.write_text("sleep 1.5; exit 3\n")
    place = ("--tee", 3, "--log-dir", tmp_path / "logs", "--result", tmp_path / "result")
    words = ("--nproc", 2, *place, "--no-python", "sh", script)
    with launched(*words, directory=tmp_path, environ=shadowed) as one:
        assert one.status() == 3, one.stderr
        assert "of the user" not in one.stderr


@pytest.mark.full
def test_nor_are_they_for_an_image_of_preloaded_modules(shadowed, tmp_path: Path):
    words = ("--nproc", 2, "--preload", "decimal", WORKERS / "sleep.py")
    with launched(*words, directory=tmp_path, environ=shadowed) as one:
        one.read_until(2)
        one.send(signal.SIGTERM)
        assert one.status() == 128 + signal.SIGTERM, one.stderr
        assert "of the user" not in one.stderr


@pytest.mark.full
def test_nor_are_they_for_the_programs_beside_a_launch(shadowed, tmp_path: Path):
    options = {"environ": clean_environ(**shadowed), "cwd": tmp_path}
    ended = [launch("--record", "record", "--no-python", "true", **options)]
    for words in (("report", "record"), ("scripts",), ("top", "--once")):
        ended.append(run(sys.executable, "-m", f"spawnlaunch.{words[0]}", *words[1:], **options))
    for done in ended:
        assert done.returncode == 0, done.stderr
        assert "of the user" not in done.stderr

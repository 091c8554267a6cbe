"""A launch in a directory whose modules have the names of Python's, of torch's and of ours."""

import shlex
import sys
from pathlib import Path

import pytest

from tests.support.launching import LAUNCHER, ROOT, WORKERS, clean_environ, launch, run

# Whatever the launcher, its guard or the image of --preload might import, sooner or later; but what
# `python -m` imports itself before it runs any module: contextlib, collections, functools.
NAMES = """
signal json typing train re enum select struct ctypes socket random pickle shlex textwrap traceback
threading difflib shutil resource zlib datetime argparse __future__
"""
# A worker may have it, as it has with plain Python; whoever has no rank is one of ours.
MODULE = """
import os
if "RANK" not in os.environ:
    raise SystemExit("the launcher has imported {name}.py of the user")
OF_THE_USER = True
"""
SAID = "import signal, json, typing, train\nfor each in (signal, json, typing, train):\n" \
    "    print(each.__name__, hasattr(each, 'OF_THE_USER'))\n"  # fmt: skip
KEPT = ("--tee", "3", "--log-dir", "logs", "--result", "r")


@pytest.fixture
def crowded(tmp_path: Path) -> Path:
    for name in NAMES.split():
        (tmp_path / f"{name}.py").write_text(MODULE.format(name=name))
    (tmp_path / "train").mkdir()
    (tmp_path / "train/__init__.py").write_text(MODULE.format(name="train/__init__"))
    (tmp_path / "mine.py").write_text(SAID)
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["--nproc", "2", WORKERS / "report.py"],
        ["--nproc", "2", *KEPT, WORKERS / "report.py"],
        ["--nproc", "1", "--no-python", "true"],
        ["--nproc", "2", "--preload", "decimal", "--prefix=never", WORKERS / "report.py"],
        ["--explain", WORKERS / "report.py"],
        ["--explain=json", WORKERS / "report.py"],
        ["--help"],
    ],
    ids=str,
)
def test_the_launcher_imports_none_of_them(words: list[object], crowded: Path):
    done = launch(*words, cwd=crowded)
    assert (done.returncode, done.stderr.count("of the user")) == (0, 0), done.stderr


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--nprocs", "2", "mine.py"], 2, "did you mean --nproc?"),
        (["--nproc", "2", "--max-restarts", "1", *KEPT, "--no-python", "sh", "fails.sh"], 1, ""),
    ],
)
def test_nor_where_something_goes_wrong(words: list[str], status: int, said: str, crowded: Path):
    """Nor where PYTHONPATH leads to them."""
    (crowded / "fails.sh").write_text("sleep 1.5; exit 1\n")  # until more would be imported
    done = launch(*words, cwd=crowded, environ=clean_environ(PYTHONPATH=f"{crowded}:{ROOT}"))
    assert done.returncode == status, done.stderr
    assert said in done.stderr
    assert "of the user" not in done.stderr


@pytest.mark.parametrize("command", [["mine.py"], ["-m", "mine"]], ids=" ".join)
@pytest.mark.parametrize("safe", ["", "1"], ids=["", "PYTHONSAFEPATH"])
def test_a_worker_imports_what_it_would_with_plain_python(
    command: list[str], safe: str, crowded: Path
):
    environ = clean_environ(PYTHONSAFEPATH=safe)
    plain = run(sys.executable, *command, cwd=crowded, environ={**environ, "RANK": "0"})
    launched = launch("--nproc", 1, *command, cwd=crowded, environ=environ)
    assert (launched.returncode, launched.stdout) == (plain.returncode, plain.stdout)


@pytest.mark.parametrize("command", [["mine.py"], ["-m", "mine"]], ids=" ".join)
def test_a_worker_of_preload_finds_the_modules_beside_it(command: list[str], crowded: Path):
    launched = launch("--nproc", 1, "--preload", "decimal", *command, cwd=crowded)
    assert "train True\n" in launched.stdout, launched.stderr


def test_a_module_of_the_working_directory_can_be_preloaded(crowded: Path):
    loud = "import json\nprint(hasattr(json, 'OF_THE_USER'), flush=True)\n"
    (crowded / "loud.py").write_text(loud)
    script = WORKERS / "report.py"
    launched = launch("--nproc", 1, "--preload", "loud", script, cwd=crowded)
    assert launched.stdout.startswith("False\n"), launched.stderr


def test_where_the_directory_has_been_deleted_the_users_path_is_kept(crowded: Path):
    gone, there = crowded / "gone", crowded / "there"
    there.mkdir()
    (there / "loud.py").write_text("print('found', flush=True)\n")
    line = f"mkdir {gone}; cd {gone}; rmdir {gone}; exec {shlex.join(LAUNCHER)} "
    line += f"--nproc 1 --preload loud {WORKERS / 'report.py'}"
    done = run("sh", "-c", line, environ=clean_environ(PYTHONPATH=str(there)))
    assert done.stdout.startswith("found\n"), done.stderr


@pytest.mark.parametrize("program", ["spawnlaunch", "spawnlaunch.check", "spawnlaunch.bench"])
def test_help_needs_no_directory(program: str, tmp_path: Path):
    gone = tmp_path / "gone"
    help = f"exec {sys.executable} -m {program} --help"
    done = run("sh", "-c", f"mkdir {gone}; cd {gone}; rmdir {gone}; {help}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ")


PROGRAMS = ["top", "report", "scripts", "check", "bench", "train"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_help_of_a_program_needs_none_of_them_and_no_docstring(program: str, crowded: Path):
    words = ("-m", f"spawnlaunch.{program}", "--help")
    done = run(sys.executable, "-OO", *words, cwd=crowded)
    assert (done.returncode, done.stdout) == (0, run(sys.executable, *words).stdout), done.stderr


@pytest.mark.parametrize("program", PROGRAMS[:-1])
def test_a_program_that_runpy_runs_leaves_the_callers_path(program: str):
    code = (
        "import runpy, sys\nsys.argv = ['', '--help']\nbefore = sys.path[:]\n"
        f"try: runpy.run_module('spawnlaunch.{program}', run_name='__main__', alter_sys=True)\n"
        "except SystemExit: print(sys.path == before)\n"
    )
    assert run(sys.executable, "-c", code).stdout.endswith("\nTrue\n")


def test_the_console_script_imports_none_of_them(crowded: Path):
    beside = Path(LAUNCHER[0]).parent / "spawnlaunch"
    if not beside.exists():
        pytest.skip("the console script is not installed")
    done = run(beside, "--nproc", 1, WORKERS / "report.py", cwd=crowded)
    assert done.returncode == 0, done.stderr

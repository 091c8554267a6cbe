"""spawnlaunch check, bench, train, top, report, scripts: words of the one command."""

import os
import re
import sys
from pathlib import Path

import pytest

from spawnlaunch.base.errors import FlagsError
from spawnlaunch.cli import parsing
from spawnlaunch.cli.flags import PROGRAMS, Instead, Program
from tests.support.launching import ROOT, clean_environ, launch, run
from tests.support.matrix import mostly_full

NO_TORCH = ("-S", "-m", "spawnlaunch")  # -S: nothing is installed


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with nothing in it: that of the repository has train/."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def program(*words: str) -> Program:
    return parsing.parse(words, {}, "python").program


@pytest.mark.usefixtures("directory")
def test_those_of_workers_are_launched() -> None:
    assert program("check", "--all") == ("module", "spawnlaunch.check", ("--all",))
    trained = program("--nproc", "2", "train", "--steps", "1")
    assert trained == ("bundled", "train", ("--steps", "1"))


@pytest.mark.parametrize("word", ["bench", "report", "scripts", "top"])
@pytest.mark.usefixtures("directory")
def test_the_others_are_run_in_place_of_a_launch_and_refuse_in_one_line(word: str) -> None:
    with pytest.raises(Instead) as instead:
        program(word, "--help", "x")
    assert instead.value.args == (f"spawnlaunch.{word}", "--help", "x")
    with pytest.raises(FlagsError, match=f"run python -m spawnlaunch {word} --help"):
        program("--quiet", word)
    done = run(sys.executable, "-m", "spawnlaunch", word, "--no-such-flag")
    assert re.fullmatch(rf"spawnlaunch {word}: error: .*; (use|run|a command) .*\n", done.stderr)


@pytest.mark.parametrize(
    "word", mostly_full(sorted(PROGRAMS, key="train".__eq__), len(PROGRAMS) - 1)
)
def test_each_word_is_the_program_of_that_name(word: str, directory: Path) -> None:
    done = run(sys.executable, "-m", "spawnlaunch", word, "--help", cwd=directory)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"spawnlaunch[ .]{word}", done.stdout)


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_script_of_that_name_goes_before_and_is_named(kind: str, directory: Path) -> None:
    script = directory / "check" if kind == "file" else directory / "check" / "__main__.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text("print('of the user')")
    done = launch("--quiet", "check", cwd=directory)
    assert (done.returncode, done.stdout) == (0, "of the user\n")
    said = "the file check here is run; for ours run python -m spawnlaunch.check"
    assert done.stderr == f"spawnlaunch: warning: {said}\n"


def test_a_directory_that_is_no_script_does_not(directory: Path) -> None:
    (directory / "train").mkdir()
    assert program("train").kind == "bundled"


def test_a_program_is_started_with_signals_as_they_were(directory: Path) -> None:
    (directory / "sitecustomize.py").write_text(
        "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, ()), flush=True)"
    )
    environ = clean_environ(PYTHONPATH=f"{directory}:{ROOT}")
    words = (sys.executable, "-m", "spawnlaunch", "scripts", "nodes.sh")
    done = run(*words, cwd=directory, environ=environ)
    assert re.findall(r"^set\(\)$", done.stdout, re.M) == ["set()", "set()"]


def test_the_version_names_those_of_python_and_torch() -> None:
    done = launch("--version")
    python = sys.version.partition(" ")[0]
    assert re.fullmatch(
        rf"spawnlaunch \S+ \(Python {re.escape(python)}, torch \d\S+(, Slurm \S+)?\)\n", done.stdout
    )
    bare = run(sys.executable, *NO_TORCH, "--version")
    assert f"(Python {python}, no torch" in bare.stdout


def test_the_version_names_that_of_slurm(tmp_path: Path) -> None:
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\ntest "$*" = --version && echo slurm-wlm 24.05.3\n')
    srun.chmod(0o755)
    environ = clean_environ(PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert launch("--version", environ=environ).stdout.endswith(", Slurm 24.05.3)\n")
    srun.write_text("#!/bin/sh\nexit 1\n")
    assert "Slurm" not in launch("--version", environ=environ).stdout


@pytest.mark.parametrize("words", [(), ("--", "--steps", "1"), ("train",), ("check",)])
def test_torch_that_is_missing_is_one_line_of_the_launcher(
    words: tuple[str, ...], directory: Path
) -> None:
    done = run(sys.executable, *NO_TORCH, "--nproc", 2, *words, cwd=directory)
    what = "the check" if words == ("check",) else "the bundled training loop"
    said = f"{what} needs torch, which is not installed; run pip install torch"
    assert (done.returncode, done.stderr) == (2, f"spawnlaunch: error: {said}\n")


@pytest.mark.parametrize("word", ["report", "scripts"])
def test_what_needs_no_torch_runs_without(word: str, directory: Path) -> None:
    done = run(sys.executable, *NO_TORCH, word, "--help", cwd=directory)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("environ", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_explain_draws_without_colours_where_none_are_wanted(
    environ: dict[str, str], coloured: bool
) -> None:
    leader, follower = os.openpty()
    words = (sys.executable, "-m", "spawnlaunch", "--explain", "-m", "json.tool")
    done = run(*words, stdout=follower, environ=clean_environ(**{"NO_COLOR": "", **environ}))
    os.close(follower)
    shown = b""
    while b"SPAWNLAUNCH_WORKER" not in shown:
        shown += os.read(leader, 1 << 16)
    os.close(leader)
    assert done.returncode == 0
    assert (b"\x1b[" in shown) == coloured

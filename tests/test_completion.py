"""--completion: what a shell offers is the table of flags, in a real bash, zsh and fish."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spawnlaunch import completion
from spawnlaunch.flags import PROGRAMS, SPELLINGS
from tests.support.launching import clean_environ, launch, run
from tests.support.patience import PATIENCE_S
from tests.support.required import require_programs

COMPREPLY = """
eval "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
compopt() { :; }
_spawnlaunch spawnlaunch "${@: -1}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A working directory with a script and a directory."""
    (tmp_path / "my train.py").touch()
    (tmp_path / "logs").mkdir()
    return tmp_path


def in_bash(directory: Path, *words: str) -> list[str]:
    """What bash offers for the last of the words; it splits them at =, as readline has it do."""
    script = completion.script("bash")
    done = run("bash", "-c", COMPREPLY, "bash", script, "spawnlaunch", *words, cwd=directory)
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["--max-r"], ["--max-restarts"]),
        (["--bind", "no"], ["node", "none"]),
        (["--bind", "=", "so"], ["socket"]),
        (["ch"], ["check"]),
        (["--nproc", "2", "my"], ["my train.py"]),
        (["my train.py", "--b"], [""]),
        (["--log-dir", "l"], [""]),  # a directory, as bash completes by default
    ],
)
def test_bash_offers_flags_values_and_scripts(
    words: list[str], offered: list[str], directory: Path
) -> None:
    assert in_bash(directory, *words) == offered


def test_bash_offers_every_flag_and_program(directory: Path) -> None:
    assert set(in_bash(directory, "-")) == set(SPELLINGS)
    assert {*PROGRAMS, "logs", "my train.py"} == set(in_bash(directory, ""))


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("spawnlaunch --max-r", ["--max-restarts"]),
        ("spawnlaunch --bind no", ["node", "none"]),
        ("spawnlaunch ch", ["check"]),
        ("spawnlaunch train.py --b", []),
        ("python -m spawnlaunch --max-r", ["--max-restarts"]),
    ],
)
def test_fish_offers_flags_and_values(words: str, offered: list[str], directory: Path) -> None:
    require_programs("fish", package="fish")
    code = f"{completion.script('fish')}\ncomplete -C '{words}'"
    environ = clean_environ(HOME=str(directory))
    done = run("fish", "--no-config", "-c", code, cwd=directory, environ=environ)
    assert done.stderr == ""
    assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == offered


BEGIN = """
got() { print -r -- GOT ${(q)@} IS''_DONE }
spawnlaunch() { got $@ }; python() { got python $@ }
autoload -U compinit; compinit -u -D; _python() { compadd others }
. ./completion; print IS''_READY
"""
LINES = [  # what is typed, and what the program gets
    ("spawnlaunch --max-r\t 3", "--max-restarts 3"),
    ("spawnlaunch --quiet my\t", "--quiet my\\ train.py"),
    ("python -m spawnlaunch --bind so\t", "python -m spawnlaunch --bind socket"),
    ("python -m spawnlaunch train.py --b\t", "python -m spawnlaunch train.py --b"),
    ("python -u o\t", "python -u others"),
]


@pytest.fixture
def terminal(directory: Path) -> Iterator[int]:
    """The leading end of a terminal on which an interactive zsh runs."""
    require_programs("zsh", package="zsh")
    (directory / "completion").write_text(completion.script("zsh") + "\n")
    leader, follower = os.openpty()
    environ = clean_environ(HOME=str(directory), TERM="dumb", PS1="> ", COLUMNS="200")
    shell = subprocess.Popen(
        ["zsh", "-f", "-i"], stdin=follower, stdout=follower, stderr=follower,
        cwd=directory, env=environ, start_new_session=True,
    )  # fmt: skip
    os.close(follower)
    yield leader
    shell.kill()
    shell.wait()
    os.close(leader)


def read_until(terminal: int, word: str) -> str:
    """What the shell prints up to this word."""
    printed, deadline = "", time.monotonic() + PATIENCE_S
    while word not in printed:
        assert time.monotonic() < deadline, printed
        if select.select([terminal], [], [], 0.1)[0]:
            printed += os.read(terminal, 1 << 16).decode(errors="replace")
    return printed


@pytest.mark.full
def test_zsh_on_a_terminal_completes_our_lines_and_leaves_others(terminal: int) -> None:
    os.write(terminal, BEGIN.encode())
    read_until(terminal, "IS_READY")
    for typed, words in LINES:
        os.write(terminal, f"{typed}\n".encode())
        printed = read_until(terminal, "IS_DONE")
        assert printed.rpartition("GOT ")[2].partition(" IS_DONE")[0] == words


def test_the_command_prints_the_script_and_refuses_other_shells() -> None:
    for shell in ("bash", "zsh", "fish"):
        done = launch("--completion", shell)
        assert (done.returncode, done.stdout) == (0, completion.script(shell) + "\n")
    wrong = launch("--completion=ksh")
    assert wrong.returncode == 2
    assert "'bash', 'zsh', 'fish'" in wrong.stderr


def test_a_shell_evaluates_what_the_command_prints() -> None:
    line = f'eval "$({sys.executable} -m spawnlaunch --completion bash)"; complete -p spawnlaunch'
    done = run("bash", "-c", line)
    assert done.stdout == "complete -o default -F _spawnlaunch spawnlaunch\n"

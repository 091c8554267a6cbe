"""--completion: what a shell offers is the table of flags, in a real bash, zsh and fish."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable
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
    """Where somebody types: a script, and a directory."""
    (tmp_path / "my train.py").touch()
    (tmp_path / "logs").mkdir()
    return tmp_path


def in_bash(directory: Path, *words: str) -> list[str]:
    """What bash offers for the last of the words; it splits them at =, as readline has it do."""
    script = completion.script("bash")
    done = run("bash", "-c", COMPREPLY, "bash", script, "spawnlaunch", *words, cwd=directory)
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


def in_fish(directory: Path, *words: str, program: str = "spawnlaunch") -> list[str]:
    require_programs("fish", package="fish")
    code = f"{completion.script('fish')}\ncomplete -C '{program} {' '.join(words)}'"
    environ = clean_environ(HOME=str(directory))
    done = run("fish", "--no-config", "-c", code, cwd=directory, environ=environ)
    assert done.stderr == ""
    return [line.partition("\t")[0] for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["--max-r"], ["--max-restarts"]),
        (["--bind", "no"], ["node", "none"]),
        (["--bind", "=", "so"], ["socket"]),
        (["--nproc", "=", "="], ["auto", "gpu", "cpu"]),
        (["--nproc", "2", "--quiet", "--on-hang", "k"], ["kill"]),
        (["--mem_bind", "b"], ["bind"]),
        (["ch"], ["check"]),
        (["--nproc", "2", "my"], ["my train.py"]),
        (["my train.py", "--b"], [""]),
        (["--log-dir", "l"], [""]),  # a directory, as bash completes by default
        (["-m", "--b"], ["--bind"]),
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
        (["--max-r"], ["--max-restarts"]),
        (["--bind", "no"], ["node", "none"]),
        (["--bind=so"], ["--bind=socket"]),
        (["--nproc", "2", "--on-hang", "k"], ["kill"]),
        (["ch"], ["check"]),
        (["train.py", "--b"], []),
    ],
)
def test_fish_offers_flags_values_and_scripts(
    words: list[str], offered: list[str], directory: Path
) -> None:
    assert in_fish(directory, *words) == offered


@pytest.mark.full
def test_fish_offers_every_long_flag(directory: Path) -> None:
    found = set(in_fish(directory, "--"))
    assert {name for name in SPELLINGS if name.startswith("--")} <= found


BEGIN = {
    "bash": (
        "PS1='> '; got() { printf 'GOT'; printf ' %q' \"$@\"; echo ' IS''_DONE'; }",
        'spawnlaunch() { got "$@"; }; python() { got python "$@"; }',
        # As bash-completion does, which loads what it has of a program when that is typed.
        "_of_others() { COMPREPLY=(others); }",
        "_completion_loader() { complete -F _of_others $1; return 124; }; set -u",
        ". ./completion; echo IS''_READY",
    ),
    "zsh": (
        "got() { print -r -- GOT ${(q)@} IS''_DONE }",
        "spawnlaunch() { got $@ }; python() { got python $@ }",
        "autoload -U compinit; compinit -u -D; _python() { compadd others }",
        ". ./completion; print IS''_READY",
    ),
}
OPTIONS = {"bash": ("--norc", "--noprofile"), "zsh": ("-f",)}
LINES = [  # what is typed, and what the program gets
    ("spawnlaunch --max-r\t 3", "--max-restarts 3"),
    ("spawnlaunch --bind=so\t", "--bind=socket"),
    ("spawnlaunch --nproc 2 --on-hang k\t", "--nproc 2 --on-hang kill"),
    ("spawnlaunch --quiet my\t", "--quiet my\\ train.py"),
    ("python -m spawnlaunch --max-r\t 3", "python -m spawnlaunch --max-restarts 3"),
    ("python -m spawnlaunch --bind so\t", "python -m spawnlaunch --bind socket"),
    ("python -X dev -m spawnlaunch ch\t", "python -X dev -m spawnlaunch check"),
    ("python -m spawnlaunch --nproc 2 my\t", "python -m spawnlaunch --nproc 2 my\\ train.py"),
    ("python -m spawnlaunch train.py --b\t", "python -m spawnlaunch train.py --b"),
    ("python -u o\t", "python -u others"),
    ("python train.py -m spawnlaunch o\t", "python train.py -m spawnlaunch others"),
]


class Interactive:
    """A shell on a terminal of its own, in which one may type a tabulator."""

    def __init__(self, shell: str, directory: Path) -> None:
        require_programs(shell, package=shell)
        (directory / "completion").write_text(completion.script(shell) + "\n")
        self.leader, follower = os.openpty()
        environ = clean_environ(HOME=str(directory), TERM="dumb", PS1="> ", COLUMNS="200")
        self.process = subprocess.Popen(
            [shell, *OPTIONS[shell], "-i"], stdin=follower, stdout=follower, stderr=follower,
            cwd=directory, env=environ, start_new_session=True,
        )  # fmt: skip
        os.close(follower)
        self.said = ""
        for line in BEGIN[shell]:
            self.type(f"{line}\n")
        self.read_until("IS_READY")

    def type(self, text: str) -> None:
        os.write(self.leader, text.encode())

    def read_until(self, word: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while word not in self.said:
            assert time.monotonic() < deadline, self.said
            if select.select([self.leader], [], [], 0.1)[0]:
                self.said += os.read(self.leader, 1 << 16).decode(errors="replace")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.leader)


def completed(shell: str, lines: Iterable[str], directory: Path) -> list[str]:
    """The words that a program gets of each line in which tabulators were typed."""
    interactive = Interactive(shell, directory)
    found = []
    try:
        for line in lines:
            interactive.said = ""
            interactive.type(f"{line}\n")
            interactive.read_until("IS_DONE")
            found.append(interactive.said.rpartition("GOT ")[2].partition(" IS_DONE")[0])
    finally:
        interactive.close()
    return found


@pytest.mark.full
@pytest.mark.parametrize("shell", BEGIN)
def test_a_shell_on_a_terminal_completes_our_lines_and_leaves_others(
    shell: str, directory: Path
) -> None:
    assert completed(shell, [line for line, _ in LINES], directory) == [rest for _, rest in LINES]


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["-m", "spawnlaunch", "--max-r"], ["--max-restarts"]),
        (["-X", "dev", "-m", "spawnlaunch", "--bind", "no"], ["node", "none"]),
        (["-m", "spawnlaunch", "my"], ["my train.py"]),
        (["my", "-m", "spawnlaunch", "--max-r"], []),
    ],
)
def test_fish_completes_what_follows_python_m_spawnlaunch(
    words: list[str], offered: list[str], directory: Path
) -> None:
    assert in_fish(directory, *words, program="python") == offered


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

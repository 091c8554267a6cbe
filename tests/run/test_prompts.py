"""Several workers on one terminal: prompts, what is typed, and a rank that is debugged."""

import signal
import time
from pathlib import Path

import pytest

from tests.run.test_terminal import CTRL_C, Terminal, asks_for_keys, ours, terminal
from tests.support.processes import children, until

ASKS = (
    "import os, sys, time\n"
    "rank = os.environ['RANK']\n"
    "if rank in sys.argv[1:]:\n"
    "    print(f'rank {rank} heard', input('what? '), flush=True)\n"
    "else:\n"
    "    time.sleep(600)\n"
)
DEBUGGED = (
    "import os, time\n"
    "rank = os.environ['RANK']\n"
    "answer = 6 * 7\n"
    "if rank == '2':\n"
    "    breakpoint()\n"
    "    print('the answer was', answer)\n"
    "    while answer == 42:\n"
    "        time.sleep(0.01)\n"
    "    os.kill(int(os.environ['TELL']), 10)\n"
    "else:\n"
    "    print('going on', flush=True)\n"
)

LISTENS = (
    "import os, sys, time\n"
    "if os.environ['RANK'] in sys.argv[1:]:\n"
    "    print('listens', flush=True)\n"
    "    print('heard:', sys.stdin.readline(), flush=True)\n"
    "time.sleep(600)\n"
)


def written(tmp_path: Path, text: str) -> Path:
    script = tmp_path / "script.py"
    script.write_text(text)
    return script


def type_once(tty: Terminal, word: str, answer: str) -> None:
    """Type a line, and wait for what comes of it."""
    tty.type(word.encode() + b"\n")
    tty.read_until(answer)


@pytest.mark.parametrize(
    ("script", "ranks", "prompt", "typed", "becomes"),
    [
        (ASKS, [2], "what? ", "nothing", "rank 2 heard nothing"),
        (ASKS, [1, 2], "what? ", "who", "ranks 1-2 ask at once, so none gets what you type"),
        (DEBUGGED.replace("while", "if 0 and"), [2], "(Pdb) ", "p answer * 100", "4200"),
        (LISTENS, [1], "listens", "a word", "heard: a word"),
    ],
    ids=["one asks", "two ask", "a debugger", "without a prompt"],
)
def test_what_is_typed_goes_to_the_one_rank_that_asks(
    script: str, ranks: list[int], prompt: str, typed: str, becomes: str, tmp_path: Path
):
    with terminal("--nproc", 4, written(tmp_path, script), *ranks) as tty:
        tty.read_until(prompt, len(ranks))
        type_once(tty, typed, becomes)
        assert "heard" not in tty.text or len(ranks) == 1
        tty.type(CTRL_C)
        tty.read_until("SIGINT: stopping")


@pytest.mark.full
def test_a_rank_that_takes_nothing_of_what_is_typed_holds_up_nobody():
    """What it has started reads something else: it looks as if the rank asked."""
    speak = "while :; do echo tick; sleep 0.05; done"
    script = f"if [ $RANK = 1 ]; then sleep 600 | cat; else {speak}; fi"
    with terminal("--nproc", 2, "--no-python", "sh", "-c", script) as tty:
        tty.read_until("tick")
        for _ in range(24):  # more than a pipe holds
            tty.type(b"x" * 3000 + b"\n")
            tty.read_until("tick", tty.text.count("tick") + 3)
        tty.type(CTRL_C)
        tty.status()


def test_the_rank_that_is_debugged_has_the_terminal_as_if_it_were_alone(tmp_path: Path):
    script = written(tmp_path, DEBUGGED.replace("int(os.environ['TELL'])", "os.getpid()"))
    with terminal("--nproc", 4, "--debug", 2, "--timeout", 1, "--hang-timeout", 1, script) as tty:
        tty.read_until("--debug: rank 2 has the terminal")
        tty.read_until("init_process_group(timeout=")
        tty.read_until("going on", 3)
        tty.read_until("(Pdb) ")
        until(lambda: asks_for_keys(tty.fd), "readline has the terminal")
        time.sleep(2)  # longer than the limits, which do not run
        type_once(tty, "p answer * 100", "4200")
        until(lambda: asks_for_keys(tty.fd), "the prompt is open")
        tty.type(CTRL_C)  # at the prompt
        tty.read_until("KeyboardInterrupt")
        tty.read_until("(Pdb) ", 3)
        tty.type(b"c\n")
        tty.read_until("the answer was 42")
        tty.type(CTRL_C)  # into the running program: back to the prompt
        tty.read_until("Program interrupted")
        tty.read_until("(Pdb) ", 4)
        until(lambda: asks_for_keys(tty.fd), "the prompt is open")
        said = [line for line in ours(tty.text) if "warning" not in line]
        assert len(said) == 2, said  # no word of the time limits, nor of Ctrl-C
        tty.type(b"answer = 0\n")
        tty.read_until("(Pdb) ", 5)
        tty.type(b"c\n")
        assert tty.status() == 128 + signal.SIGUSR1


def test_CTRL_BACKSLASH_ends_a_launch_that_is_debugged_and_CTRL_C_one_whose_rank_has_ended(
    tmp_path: Path,
):
    script = written(tmp_path, ASKS)
    with terminal("--nproc", 2, "--debug", 1, script, 1) as tty:
        tty.read_until("what? ")
        tty.type(b"\x1c")
        tty.read_until("SIGQUIT")
        assert tty.status() != 0
    with terminal("--nproc", 2, "--debug", 1, script, 1) as tty:
        tty.read_until("what? ")
        type_once(tty, "x", "rank 1 heard x")
        (guard,) = children(tty.pid)
        until(lambda: len(children(guard)) == 1, "rank 1 has ended")
        tty.type(CTRL_C)
        tty.read_until("SIGINT: stopping")
        assert tty.status() == 128 + signal.SIGINT

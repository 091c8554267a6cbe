"""In a terminal: Ctrl-C, Ctrl-Z and a debugger, typed on a real one."""

import os
import pty
import signal
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.launching import LAUNCHER, ROOT, THREAD, WORKERS, clean_environ
from tests.support.matrix import mostly_full
from tests.support.patience import PATIENCE_S
from tests.support.processes import children, hold_by_a_debugger, state, until

CTRL_C, CTRL_Z = b"\x03", b"\x1a"


def asks_for_keys(fd: int) -> bool:
    """Whether whoever reads the terminal gets each key, as at a prompt."""
    return not termios.tcgetattr(fd)[3] & termios.ICANON


class Terminal:
    """A pseudo-terminal and the launcher in its foreground."""

    def __init__(self, pid: int, fd: int) -> None:
        self.pid = pid
        self.fd = fd
        self.text = ""
        self.wait_status: int | None = None

    def type(self, keys: bytes) -> None:
        os.write(self.fd, keys)

    def read_until(self, word: str, count: int = 1) -> None:
        deadline = time.monotonic() + PATIENCE_S
        os.set_blocking(self.fd, False)
        while self.text.count(word) < count:
            assert time.monotonic() < deadline, f"{word!r} never came: {self.text}"
            if not self.read():
                time.sleep(0.01)

    def read(self) -> bool:
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # nothing yet, or nobody has the other end any more
            return False
        self.text += data.decode()
        return bool(data)

    def ended(self) -> bool:
        self.read()
        if self.wait_status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.wait_status = status
        return self.wait_status is not None

    def status(self) -> int:
        until(self.ended, "the launcher has ended")
        while self.read():
            pass
        assert self.wait_status is not None
        code = os.waitstatus_to_exitcode(self.wait_status)
        return code if code >= 0 else 128 - code


@contextmanager
def terminal(*words: object, above: tuple[str, ...] = ()) -> Iterator[Terminal]:
    command = [*above, *LAUNCHER, "--quiet", *map(str, words)]
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe(command[0], command, clean_environ())
    running = Terminal(pid, fd)
    try:
        yield running
    finally:
        if not running.ended():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(fd)


def ours(text: str) -> list[str]:
    """The lines that the launcher itself has said."""
    return [
        line for line in text.splitlines() if line.removeprefix("^C").startswith("spawnlaunch:")
    ]


def test_CTRL_C_ends_several_workers_with_one_line():
    with terminal("--nproc", 2, WORKERS / "catch.py", "INT", "TERM") as tty:
        tty.read_until("ready", 2)
        tty.type(CTRL_C)
        assert tty.status() == 85
        assert "got SIGINT: stopping the workers by SIGTERM, after 30 s" in ours(tty.text)[0]
        assert len(ours(tty.text)) == 1
        assert "SIGINT 0" not in tty.text  # they are in other sessions, and told with SIGTERM
        assert "Traceback" not in tty.text


@pytest.mark.parametrize("site", ["", THREAD], ids=["alone", "another thread takes signals"])
def test_CTRL_C_is_for_a_single_worker_itself(site: str, tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text(site)
    above = ("env", f"PYTHONPATH={tmp_path}:{ROOT}")
    with terminal("--nproc", 1, WORKERS / "catch.py", "INT", "TERM", above=above) as tty:
        tty.read_until("ready")
        tty.type(CTRL_C)
        tty.read_until("SIGINT 0")
        tty.read_until("Ctrl-C: the worker has 30 s to end; Ctrl-C again kills it")
        assert "SIGTERM 0" not in tty.text
        tty.type(CTRL_C)
        assert tty.status() == 128 + signal.SIGINT
        assert "SIGINT again: killing the workers" in tty.text
        assert "Traceback" not in tty.text


def test_a_program_does_not_get_the_CTRL_C_again_that_its_launch_has_ended_of(tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text(THREAD)  # so the launch has a process of its own
    above = ("env", f"PYTHONPATH={tmp_path}:{ROOT}")
    with terminal("--nproc", 1, WORKERS / "catch.py", "TERM", above=above) as tty:
        tty.read_until("ready")
        (launch,) = children(tty.pid)
        let_go = hold_by_a_debugger(tty.pid)  # its main thread
        tty.type(CTRL_C)
        until(lambda: state(launch) in ("", "Z"), "the launch has ended")
        let_go()
        assert tty.status() == 128 + signal.SIGINT
        assert tty.text.count("KeyboardInterrupt") == 1  # the worker's


@pytest.mark.parametrize("nproc", mostly_full([2, 1]))
def test_CTRL_Z_stops_the_workers_and_fg_continues_them(nproc: int):
    shell = ("bash", "-mc", '"$0" "$@"; read; fg')
    with terminal("--nproc", nproc, WORKERS / "sleep.py", above=shell) as tty:
        tty.read_until("ready", nproc)
        (launcher,) = children(tty.pid)
        (guard,) = children(launcher)
        everyone = [launcher, *children(guard)]
        tty.type(CTRL_Z)
        until(lambda: {state(pid) for pid in everyone} == {"T"}, "all are stopped")
        tty.type(b"\n")
        until(lambda: {state(pid) for pid in everyone} == {"S"}, "all go on")
        tty.type(CTRL_C)
        assert tty.status() == 128 + signal.SIGINT


@pytest.mark.parametrize(
    ("nproc", "is_below"), mostly_full([(2, True), (1, False), (2, False), (1, True)])
)
def test_CTRL_Z_stops_nobody_where_no_shell_could_continue_them(nproc: int, is_below: bool):
    above = ("sh", "-c", '"$0" "$@"; exit $?') if is_below else ()
    with terminal("--nproc", nproc, WORKERS / "catch.py", "INT", "TERM", above=above) as tty:
        tty.read_until("ready", nproc)
        tty.type(CTRL_Z)
        tty.read_until("^Z")
        tty.type(CTRL_C)
        tty.read_until("^C")
        tty.type(CTRL_C)
        assert tty.status() in (85, 128 + signal.SIGINT)


# Several workers: prompts, what is typed, and a rank that is debugged

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
    "    os.kill(os.getpid(), 10)\n"
    "else:\n"
    "    print('going on', flush=True)\n"
)


def written(tmp_path: Path, text: str) -> Path:
    script = tmp_path / "script.py"
    script.write_text(text)
    return script


def type_once(tty: Terminal, word: str, answer: str) -> None:
    """Type a line, and wait for what comes of it."""
    tty.type(word.encode() + b"\n")
    tty.read_until(answer)


def test_what_is_typed_goes_to_the_one_rank_that_asks(tmp_path: Path):
    with terminal("--nproc", 4, written(tmp_path, ASKS), 2) as tty:
        tty.read_until("what? ")
        type_once(tty, "a word", "rank 2 heard a word")
        tty.type(CTRL_C)
        tty.read_until("SIGINT: stopping")


def test_the_rank_that_is_debugged_has_the_terminal_as_if_it_were_alone(tmp_path: Path):
    script = written(tmp_path, DEBUGGED)
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

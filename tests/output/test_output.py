"""What several workers write: whole lines, none lost, each with its rank; and where it goes."""

import os
import pty
import re
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.launching import LAUNCHER, NEW_NAME, WORKERS, clean_environ, launch, run, start
from tests.support.matrix import mostly_full
from tests.support.patience import PATIENCE_S

CHATTER = WORKERS / "chatter.py"
LINE = re.compile(r"(?:\[(\d+)\] )?rank (\d+) line (\d+) (x*) end")
AS_USERS_DO = (sys.executable, "-m", "spawnlaunch", "--quiet")
SPEAK = ("--no-python", "sh", "-c", "echo said by $RANK; echo also by $RANK >&2")
NODE_1 = ("--nnodes", 2, "--node-rank", 1, "--master-addr", "localhost", "--no-gang")
HERE = os.uname().nodename.partition(".")[0]


def chatter(output: str, prefix: bool = False) -> dict[str, list[int]]:
    """The numbers of the lines of each rank; fails on a line that nobody wrote like that."""
    numbers: dict[str, list[int]] = {}
    for line in output.splitlines():
        if not line.startswith("spawnlaunch: "):
            found = LINE.fullmatch(line)
            assert found, line
            assert found[1] == (found[2] if prefix else None)
            assert len(found[4]) == int(found[3]) % 90
            numbers.setdefault(found[2], []).append(int(found[3]))
    return numbers


def as_users_do(*words: object, **environ: str) -> subprocess.CompletedProcess[str]:
    """A launch with its prefixes."""
    on_loopback = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    return run(*AS_USERS_DO, *words, environ=clean_environ(**on_loopback, **environ))


def said(output: str) -> list[str]:
    return sorted(output.splitlines())


def kept(directory: Path) -> dict[str, str]:
    """The files below a directory, and what is in them; NEW is the new name of a launch."""
    files = (path for path in directory.rglob("*.log") if path.is_file())
    names = ((re.sub(NEW_NAME, "NEW", str(path.relative_to(directory))), path) for path in files)
    return {name: path.read_text() for name, path in names}


@pytest.mark.parametrize(
    ("flags", "prefixes"),
    mostly_full(
        [
            (("--nproc", 2), {0: "[0] ", 1: "[1] "}),
            (("--nproc", 1), {0: ""}),
            (("--nproc", 2, "--no-prefix"), {0: "", 1: ""}),
            (("--nproc", 2, "--prefix=never"), {0: "", 1: ""}),
            ((*NODE_1, "--nproc", 2), {2: f"[{HERE}:2] ", 3: f"[{HERE}:3] "}),
            ((*NODE_1, "--nproc", 1), {1: f"[{HERE}:1] "}),
        ],
        4,
    ),
)
def test_each_line_bears_its_rank_and_on_several_nodes_the_host(flags, prefixes: dict[int, str]):
    done = as_users_do(*flags, *SPEAK)
    assert said(done.stdout) == [f"{prefix}said by {rank}" for rank, prefix in prefixes.items()]
    assert said(done.stderr) == [f"{prefix}also by {rank}" for rank, prefix in prefixes.items()]


@pytest.mark.parametrize(("fd", "count"), mostly_full([(1, 30000), (2, 1500)]))
def test_a_slow_reader_loses_nothing(fd: int, count: int):
    """Whatever the grace: of more than may wait, or of what workers have left at their end."""
    words = (*LAUNCHER, "--nproc", "2", "--quiet", "--grace", "0", CHATTER, count, fd)
    launcher = start(*words, stderr=subprocess.PIPE)
    time.sleep(1)  # the pipe and what may wait are full by now
    assert launcher.poll() is None
    outputs = launcher.communicate(timeout=PATIENCE_S)
    assert chatter(outputs[fd - 1]) == {str(rank): list(range(count)) for rank in range(2)}


def test_a_slow_reader_at_a_socket_does_not_stop_the_launcher():
    ours, theirs = socket.socketpair()
    words = (*LAUNCHER, "--nproc", "2", "--quiet", "--grace", "1", CHATTER, "100000", "1")
    launcher = start(*words, stdout=theirs, stderr=subprocess.PIPE)
    with suppress(BlockingIOError):  # until the socket takes no more
        while launcher.poll() is None:
            theirs.send(b"\n", socket.MSG_DONTWAIT)
            time.sleep(0.05)
    assert launcher.poll() is None
    launcher.terminate()
    _, stderr = launcher.communicate(timeout=PATIENCE_S)
    theirs.close()
    ours.close()
    assert launcher.returncode == 128 + 15
    assert "our stdout was not read: dropped" in stderr


@pytest.mark.parametrize("fd", mostly_full([1, 2]))
def test_a_reader_that_never_reads_does_not_keep_the_launch_beyond_the_grace(fd: int):
    ours, theirs = os.pipe()
    streams = {1: {"stdout": theirs, "stderr": subprocess.PIPE}, 2: {"stderr": theirs}}[fd]
    words = (*LAUNCHER, "--nproc", "2", "--quiet", "--grace", "1", CHATTER, "3000", fd)
    launcher = start(*words, **streams)
    os.close(theirs)
    try:
        _, stderr = launcher.communicate(timeout=PATIENCE_S)
        # 74: nobody read the line that says what was lost, either
        assert launcher.returncode == {1: 0, 2: os.EX_IOERR}[fd]
        if fd == 1:
            written = 2 * sum(len(f"rank 0 line {n} {'x' * (n % 90)} end\n") for n in range(3000))
            dropped = r"spawnlaunch: our stdout was not read: dropped the last (\d+) bytes that "
            found = re.fullmatch(rf"{dropped}workers wrote\n", stderr)
            assert found, stderr
            assert written - 3 * 65536 < int(found[1]) < written
    finally:
        os.close(ours)


def test_a_reader_that_goes_away_is_felt_by_the_workers():
    words = (*LAUNCHER, "--nproc", "2", "--quiet", "--no-python", "yes")
    launcher = start(*words, stderr=subprocess.PIPE, text=False)
    assert launcher.stdout
    assert launcher.stdout.readline() == b"y\n"
    launcher.stdout.close()
    assert launcher.wait(timeout=PATIENCE_S) == 128 + 13  # SIGPIPE, as without a launcher


def test_what_the_other_stream_says_while_a_bar_stands_begins_below_it():
    """Where both lead to one place, as on a terminal."""
    script = r"if [ $RANK = 0 ]; then printf '\rbar 50'; sleep 0.2; echo below >&2; fi"
    words = (*AS_USERS_DO, "--nproc", 2, "--no-python", "sh", "-c", script)
    assert "[0] bar 50\n[0] below\n" in run(*words, stderr=subprocess.STDOUT).stdout


BOTH = (("stdout", "said"), ("stderr", "also"))
OF_NODE_1 = (*NODE_1, "--prefix=never")


@pytest.mark.parametrize(
    ("flags", "place", "shown", "files"),
    [
        ((), "", [0, 1], {n: f"run-NEW/attempt_0/{n}" for n in (0, 1)}),
        (("--redirects", 3, "--tee", "0:1"), "{rank}-{local_rank}", [0], {0: "0-0", 1: "1-1"}),
        ((*OF_NODE_1, "--redirects", "r3:3"), "", [2], {3: "run/attempt_0/3"}),
        ((*OF_NODE_1, "--redirects", "r3:3"), "{host}/{rank}", [2], {3: f"{HERE}/3"}),
    ],
)
def test_files_keep_what_flags_name(flags, place: str, shown, files, tmp_path: Path):
    words = ("--nproc", 2, "--prefix=never", "--log-dir", tmp_path / place, "--rdzv-id", "run")
    done = as_users_do(*words, *flags, *SPEAK)
    assert said(done.stdout) == [f"said by {rank}" for rank in shown], done.stderr
    assert kept(tmp_path) == {
        f"{where}/{name}.log": f"{verb} by {rank}\n"
        for rank, where in files.items()
        for name, verb in BOTH
    }


def test_TEE_alone_shows_all_and_says_that_no_file_is_kept():
    done = as_users_do("--nproc", 2, "--tee", 3, *SPEAK)
    assert said(done.stdout) == ["[0] said by 0", "[1] said by 1"]
    assert "--tee without --log-dir" in done.stderr


@pytest.mark.parametrize(
    ("flags", "ranks"),
    mostly_full(
        [
            (["--local-ranks-filter", "1"], [3]),
            (["--ranks-filter", "0,2"], [2]),
            (["--ranks-filter", "2", "--local-ranks-filter", "1"], [2, 3]),
            (["--ranks-filter", "0"], []),
            (["--ranks-filter", ""], [2, 3]),
        ],
        3,
    ),
)
def test_a_filter_shows_the_ranks_that_it_names(flags: list[str], ranks: list[int]):
    done = as_users_do(*OF_NODE_1, "--nproc", 2, *flags, *SPEAK)
    assert said(done.stdout) == [f"said by {rank}" for rank in ranks]
    assert said(done.stderr) == [f"also by {rank}" for rank in ranks]


def on_a_terminal(**environ: str) -> str:
    """What two workers look like there, and what they know of it."""
    pid, fd = pty.fork()
    if pid == 0:
        words = ["--nproc", "2", "--no-python", "sh", "-c"]
        command = [*AS_USERS_DO, *words, "echo $SPAWNLAUNCH_TERMINAL_COLUMNS >&2"]
        os.execve(sys.executable, command, clean_environ(**environ))
    output = b""
    with suppress(OSError):  # its end
        while chunk := os.read(fd, 65536):
            output += chunk
    os.close(fd)
    assert os.waitpid(pid, 0)[1] == 0
    return output.decode()


def test_on_a_terminal_each_rank_has_a_colour_and_knows_the_room():
    coloured = ["76", "76", "\x1b[33m[1]\x1b[0m", "\x1b[36m[0]\x1b[0m"]
    assert sorted(on_a_terminal().split()) == sorted(coloured)
    assert sorted(on_a_terminal(NO_COLOR="1").split()) == ["76", "76", "[0]", "[1]"]


def test_elsewhere_the_room_of_an_outer_terminal_is_forgotten():
    words = ("--no-python", "sh", "-c", "echo ${SPAWNLAUNCH_TERMINAL_COLUMNS-none}")
    done = launch("--nproc", 2, *words, environ=clean_environ(SPAWNLAUNCH_TERMINAL_COLUMNS="80"))
    assert said(done.stdout) == ["none", "none"]

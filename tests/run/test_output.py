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

from spawnlaunch import cli
from spawnlaunch.run import log_place
from spawnlaunch.world.identity import Capacity
from spawnlaunch.world.resolve import resolve_world
from tests.support.launching import HOST, LAUNCHER, WORKERS, clean_environ, launch, run, start
from tests.support.patience import PATIENCE_S

CHATTER = WORKERS / "chatter.py"
LINE = re.compile(r"(?:\[(\d+)\] )?rank (\d+) line (\d+) (x*) end")
AS_USERS_DO = (sys.executable, "-m", "spawnlaunch", "--quiet")
SPEAK = ("--no-python", "sh", "-c", "echo said by $RANK; echo also by $RANK >&2")


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
    return run(
        *AS_USERS_DO,
        *words,
        environ=clean_environ(GLOO_SOCKET_IFNAME="lo", NCCL_SOCKET_IFNAME="lo", **environ),
    )


def said(output: str) -> list[str]:
    return sorted(output.splitlines())


def test_the_traceback_of_the_first_failure_comes_last():
    done = launch("--nproc", 3, WORKERS / "fail.py", 1, "raise")
    assert done.returncode == 1
    assert done.stderr.endswith("RuntimeError: the worker's own message\n")
    report = done.stderr[done.stderr.index(f"the last lines of rank 1 on {HOST}:") :]
    assert "Traceback (most recent call last):" in report


def test_each_line_of_several_workers_bears_its_rank():
    done = as_users_do("--nproc", 2, *SPEAK)
    assert said(done.stdout) == ["[0] said by 0", "[1] said by 1"]
    assert said(done.stderr) == ["[0] also by 0", "[1] also by 1"]


def test_with_several_nodes_the_host_is_there_too():
    flags = ["--nnodes", 2, "--node-rank", 1, "--master-addr=a", "--no-gang", "--nproc"]
    host = os.uname().nodename.partition(".")[0]
    done = as_users_do(*flags, 2, *SPEAK)
    assert said(done.stdout) == [f"[{host}:2] said by 2", f"[{host}:3] said by 3"]
    alone_here = as_users_do(*flags, 1, *SPEAK)
    assert said(alone_here.stdout) == [f"[{host}:1] said by 1"]


def test_a_worker_alone_and_NO_PREFIX_are_shown_as_they_write():
    assert said(as_users_do("--nproc", 1, *SPEAK).stdout) == ["said by 0"]
    done = as_users_do("--nproc", 2, "--no-prefix", *SPEAK)
    assert said(done.stdout) == ["said by 0", "said by 1"]


def test_lines_of_several_workers_are_whole_and_in_order():
    done = as_users_do("--nproc", 4, CHATTER, 3000, "both")
    assert done.returncode == 0
    everything = {str(rank): list(range(3000)) for rank in range(4)}
    assert chatter(done.stdout, prefix=True) == everything
    assert chatter(done.stderr, prefix=True) == everything


def test_lines_are_whole_where_both_streams_go_to_one_place(tmp_path: Path):
    with (tmp_path / "both").open("w+") as file:
        command = [*LAUNCHER, "--quiet", "--nproc", "2", str(CHATTER), "2000", "both"]
        subprocess.run(command, env=clean_environ(), stdout=file, stderr=file, check=True)
        file.seek(0)
        assert {rank: len(lines) for rank, lines in chatter(file.read()).items()} == {
            "0": 4000,
            "1": 4000,
        }


@pytest.mark.parametrize("fd", [1, 2])
def test_a_slow_reader_loses_nothing(fd: int):
    launcher = start(
        *LAUNCHER, "--nproc", "2", "--quiet", CHATTER, "30000", fd, stderr=subprocess.PIPE
    )
    time.sleep(1)  # the pipe and what may wait are full by now
    assert launcher.poll() is None
    outputs = launcher.communicate(timeout=PATIENCE_S)
    assert chatter(outputs[fd - 1]) == {str(rank): list(range(30000)) for rank in range(2)}


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
    assert "nobody read our stdout: dropped" in stderr


@pytest.mark.parametrize("fd", [1, pytest.param(2, marks=pytest.mark.full)])
def test_a_reader_that_never_reads_does_not_keep_the_launch_beyond_the_grace(fd: int):
    ours, theirs = os.pipe()
    streams = {1: {"stdout": theirs, "stderr": subprocess.PIPE}, 2: {"stderr": theirs}}[fd]
    launcher = start(
        *LAUNCHER, "--nproc", "2", "--quiet", "--grace", "1", CHATTER, "3000", fd, **streams
    )
    os.close(theirs)
    try:
        _, stderr = launcher.communicate(timeout=PATIENCE_S)
        # 74: nobody read the line that says what was lost, either
        assert launcher.returncode == {1: 0, 2: os.EX_IOERR}[fd]
        if fd == 1:
            written = 2 * sum(len(f"rank 0 line {n} {'x' * (n % 90)} end\n") for n in range(3000))
            found = re.fullmatch(
                r"spawnlaunch: nobody read our stdout: dropped the last (\d+) bytes that workers "
                r"wrote\n",
                stderr,
            )
            assert found, stderr
            assert written - 3 * 65536 < int(found[1]) < written
    finally:
        os.close(ours)


def test_a_reader_that_goes_away_is_felt_by_the_workers():
    launcher = start(
        *LAUNCHER,
        "--nproc",
        "2",
        "--quiet",
        "--no-python",
        "yes",
        stderr=subprocess.PIPE,
        text=False,
    )
    assert launcher.stdout
    assert launcher.stdout.readline() == b"y\n"
    launcher.stdout.close()
    assert launcher.wait(timeout=PATIENCE_S) == 128 + 13  # SIGPIPE, as without a launcher


@pytest.mark.parametrize("nproc", [2, 3])
def test_the_last_line_is_kept_without_its_newline(nproc: int):
    done = launch("--nproc", nproc, "--quiet", "--no-python", "sh", "-c", "printf last$RANK >&2")
    last = [line for line in done.stderr.splitlines() if line.startswith("last")]
    assert sorted(last) == [f"last{rank}" for rank in range(nproc)]


def test_a_progress_bar_keeps_its_rank_and_overwrites_itself():
    bar = r"[ $RANK = 0 ] || { printf '\r 10%%'; sleep 0.2; printf '\r 20%%\n'; } >&2"
    done = subprocess.run(
        [*AS_USERS_DO, "--nproc", "2", "--no-python", "sh", "-c", bar],
        env=clean_environ(),
        capture_output=True,
        check=True,
    )
    assert done.stderr == b"\r[1]  10%\r[1]  20%\n"


def kept(directory: Path) -> dict[str, str]:
    """The files below a directory, and what is in them."""
    return {
        str(path.relative_to(directory)): path.read_text()
        for path in directory.rglob("*.log")
        if path.is_file()
    }


def test_what_the_other_stream_says_while_a_bar_stands_begins_below_it():
    """Where both lead to one place, as on a terminal."""
    script = r"if [ $RANK = 0 ]; then printf '\rbar 50'; sleep 0.2; echo below >&2; fi"
    done = run(
        *AS_USERS_DO, "--nproc", 2, "--no-python", "sh", "-c", script, stderr=subprocess.STDOUT
    )
    assert "[0] bar 50\n[0] below\n" in done.stdout


def test_without_a_log_directory_the_files_are_where_it_is_said(tmp_path: Path):
    flags = ("--nproc", 2, "--quiet", "--redirects", 3)
    done = launch(*flags, *SPEAK, environ=clean_environ(TMPDIR=str(tmp_path)))
    assert done.returncode == 0
    (said_place,) = re.findall(r"the streams are kept in (\S+)", done.stderr)
    assert len(list(Path(said_place).rglob("stdout.log"))) == 2


def test_a_log_directory_that_cannot_be_made_is_named_as_it_would_be():
    done = launch("--nproc", 2, "--log-dir", "/dev/null/logs", "--rdzv-id", "me", *SPEAK)
    assert done.returncode == 2
    assert "cannot make the directory /dev/null/logs/me/attempt_0/0: " in done.stderr
    assert "earlier run" not in done.stderr


def test_whoever_looks_for_a_place_takes_it_at_once(tmp_path: Path):
    """So launches of one name that begin at the same time have a place each: as rank 0, twice."""
    places = []
    for node_rank in (1, 0, 0):
        flags = f"--nnodes 2 --node-rank {node_rank} --no-gang --master-addr 127.0.0.1 --rdzv-id me"
        words = [*flags.split(), "--log-dir", str(tmp_path), str(CHATTER)]
        request = cli.parse(words, {}, "python")
        resolution = resolve_world(request, {}, "node", Capacity(0, 2))
        places.append(log_place.choose_log_directories(request, resolution, "/tmp/scratch")[0])
    assert places[1] != places[2]
    assert places[0] == places[1]


def test_a_log_directory_keeps_what_is_shown(tmp_path: Path):
    done = as_users_do("--nproc", 2, "--log-dir", tmp_path, "--rdzv-id", "run", *SPEAK)
    assert said(done.stdout) == ["[0] said by 0", "[1] said by 1"]
    assert kept(tmp_path) == {
        f"run/attempt_0/{rank}/{name}.log": f"{verb} by {rank}\n"
        for rank in (0, 1)
        for name, verb in (("stdout", "said"), ("stderr", "also"))
    }


def test_redirects_and_tee_together_show_one_rank_and_keep_all(tmp_path: Path):
    flags = ["--redirects", 3, "--tee", "0:1", "--log-dir", tmp_path / "{rank}-{local_rank}"]
    done = as_users_do("--nproc", 2, *flags, *SPEAK)
    assert said(done.stdout) == ["[0] said by 0"]
    assert done.stderr == ""
    assert kept(tmp_path) == {
        f"{rank}-{rank}/{name}.log": f"{verb} by {rank}\n"
        for rank in (0, 1)
        for name, verb in (("stdout", "said"), ("stderr", "also"))
    }


def test_a_global_rank_may_be_named(tmp_path: Path):
    flags = ("--nnodes=2", "--node-rank=1", "--master-addr=localhost", "--no-gang", "--nproc=2")
    files = ["--tee", "r3:1", "--log-dir", tmp_path / "{host}" / "{node_rank}"]
    done = as_users_do(*flags, *files, *SPEAK)
    assert done.returncode == 2
    assert "several ranks the same directory" in done.stderr
    files[-1] = tmp_path / "{host}" / "{rank}"
    as_users_do(*flags, *files, *SPEAK)
    assert list(kept(tmp_path).values()) == ["said by 3\n"]


def test_TEE_alone_shows_all_and_says_that_no_file_is_kept():
    done = as_users_do("--nproc", 2, "--tee", 3, *SPEAK)
    assert said(done.stdout) == ["[0] said by 0", "[1] said by 1"]
    assert "--tee without --log-dir" in done.stderr


@pytest.mark.parametrize(
    ("flags", "ranks"),
    [
        (["--local-ranks-filter", "1"], [3]),
        (["--local-ranks-filter", "0-1"], [2, 3]),
        (["--ranks-filter", "0,2"], [2]),
        (["--ranks-filter", "2", "--local-ranks-filter", "1"], [2, 3]),
        (["--ranks-filter", "0"], []),
        (["--ranks-filter", ""], [2, 3]),
    ],
)
def test_a_filter_shows_the_ranks_that_it_names(flags: list[str], ranks: list[int]):
    nodes = [
        "--nnodes",
        2,
        "--node-rank",
        1,
        "--master-addr",
        "localhost",
        "--no-gang",
        "--no-prefix",
    ]
    done = as_users_do(*nodes, "--nproc", 2, *flags, *SPEAK)
    assert said(done.stdout) == [f"said by {rank}" for rank in ranks]
    assert said(done.stderr) == [f"also by {rank}" for rank in ranks]


def test_a_filtered_ranks_traceback_is_shown_when_it_fails():
    done = as_users_do("--nproc", 2, "--local-ranks-filter", 0, WORKERS / "fail.py", 1, "raise")
    assert done.returncode == 1
    assert done.stderr.endswith("RuntimeError: the worker's own message\n")
    assert done.stderr.count("Traceback") == 1


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--local-ranks-filter", "2,7"], "--local-ranks-filter 2,7: there is no such rank; type"),
        (["--ranks-filter", "two"], "'two' is no list of ranks; type numbers: 0,4-7"),
        (["--tee", "x:1"], "or by global rank: r9:3"),
        (["--log-dir", "{rnak}"], "--log-dir {rnak}: not a template of {rank} {local_rank}"),
        (["--log-dir", "{rank"], "correct it, or write {{ for a {"),
        (["--log-dir", "{host}"], "several ranks the same directory"),
        (["--log-dir", "/dev/null/logs"], "cannot make the directory /dev/null/logs"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(flags: list[str], words: str):
    done = as_users_do("--nproc", 2, *flags, *SPEAK)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def on_a_terminal(**environ: str) -> str:
    """What two workers look like there, and what they know of it."""
    pid, fd = pty.fork()
    if pid == 0:
        words = ["--nproc", "2", "--no-python", "sh", "-c"]
        command = [*AS_USERS_DO, *words, "echo $SPAWNLAUNCH_TERMINAL_COLUMNS >&2"]
        os.execve(sys.executable, command, clean_environ(**environ))
    output = b""
    try:
        while chunk := os.read(fd, 65536):
            output += chunk
    except OSError:
        pass  # its end
    os.close(fd)
    assert os.waitpid(pid, 0)[1] == 0
    return output.decode()


def test_on_a_terminal_each_rank_has_a_colour_and_knows_the_room():
    assert sorted(on_a_terminal().split()) == sorted(
        ["\x1b[36m[0]\x1b[0m", "76", "\x1b[33m[1]\x1b[0m", "76"]
    )
    assert sorted(on_a_terminal(NO_COLOR="1").split()) == ["76", "76", "[0]", "[1]"]


def test_elsewhere_the_room_of_an_outer_terminal_is_forgotten():
    words = ["--no-python", "sh", "-c", "echo ${SPAWNLAUNCH_TERMINAL_COLUMNS-none}"]
    done = as_users_do("--nproc", 2, *words, SPAWNLAUNCH_TERMINAL_COLUMNS="80")
    assert said(done.stdout) == ["[0] none", "[1] none"]

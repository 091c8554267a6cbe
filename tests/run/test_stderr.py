"""The stderr of several workers: whole lines, none lost, the first failure's traceback last."""

import os
import re
import subprocess
import time

import pytest

from tests.launching import LAUNCHER, WORKERS, clean_environ, launch

LINE = re.compile(r"rank (\d+) line (\d+) (x*) end")


def chatter(stderr: str) -> dict[str, list[int]]:
    """The numbers of the lines of each rank; fails on a line that nobody wrote like that."""
    numbers: dict[str, list[int]] = {}
    for line in stderr.splitlines():
        if not line.startswith("spawnlaunch: "):
            found = LINE.fullmatch(line)
            assert found, line
            assert len(found[3]) == int(found[2]) % 90
            numbers.setdefault(found[1], []).append(int(found[2]))
    return numbers


def test_the_traceback_of_the_first_failure_comes_last():
    done = launch("--nproc", 3, WORKERS / "fail.py", 1, "raise")
    assert done.returncode == 1
    assert done.stderr.endswith("RuntimeError: the worker's own message\n")
    report = done.stderr[done.stderr.index("rank 1 said last:") :]
    assert "Traceback (most recent call last):" in report


def test_lines_of_several_workers_are_whole_and_in_order():
    done = launch("--nproc", 4, WORKERS / "chatter.py", 3000)
    assert done.returncode == 0
    assert chatter(done.stderr) == {str(rank): list(range(3000)) for rank in range(4)}


def test_a_slow_reader_loses_nothing():
    launcher = subprocess.Popen(
        [*LAUNCHER, "--nproc", "2", "--quiet", str(WORKERS / "chatter.py"), "30000"],
        env=clean_environ(),
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(1)  # the pipe and what may wait are full by now
    assert launcher.poll() is None
    _, stderr = launcher.communicate(timeout=60)
    assert chatter(stderr) == {str(rank): list(range(30000)) for rank in range(2)}


def test_a_reader_that_never_reads_does_not_keep_the_launch_beyond_the_grace():
    ours, theirs = os.pipe()
    flags = ["--nproc", "2", "--quiet", "--grace", "1"]
    launcher = subprocess.Popen(
        [*LAUNCHER, *flags, str(WORKERS / "chatter.py"), "3000"],
        env=clean_environ(),
        stderr=theirs,
    )
    os.close(theirs)
    try:
        assert launcher.wait(timeout=30) == 0
    finally:
        os.close(ours)


@pytest.mark.parametrize("nproc", [2, 3])
def test_the_last_line_is_kept_without_its_newline(nproc: int):
    done = launch("--nproc", nproc, "--quiet", "--no-python", "sh", "-c", "printf last$RANK >&2")
    said = [line for line in done.stderr.splitlines() if line.startswith("last")]
    assert sorted(said) == [f"last{rank}" for rank in range(nproc)]

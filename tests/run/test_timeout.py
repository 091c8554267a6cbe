"""Limits of time: --timeout ends the launch as SIGTERM does, with status 124; none is too long."""

import json
import signal
from pathlib import Path

import pytest

from spawnlaunch.outcome.failures import TIMED_OUT
from tests.support.launching import FAMILY, WITHOUT_GUARD, WORKERS
from tests.support.matrix import mostly_full
from tests.support.watching import launched

LONG = mostly_full([10**20, 2147484])  # what no clock will reach; one second more than 2**31 ms
WORDS = [
    (FAMILY, "daemon", "--", "stay"),
    pytest.param((WORKERS / "catch.py", "TERM"), marks=pytest.mark.full),
]
FLAGS = ("--timeout", "--grace", "--hang-timeout", "--restart-window")


@pytest.mark.parametrize("words", WORDS)
def test_workers_are_told_to_end_then_killed_and_124_is_the_status(
    words: tuple[object, ...], tmp_path: Path
):
    path = tmp_path / "result.json"
    flags = ("--nproc", 2, "--timeout", "1", "--grace", "0.3", "--result", path)
    with launched(*flags, *words, directory=tmp_path) as one:
        assert one.status() == TIMED_OUT
        first = one.stderr.splitlines()[0]
    over = "the time of the launch is over (--timeout): stopping the workers"
    assert first == f"spawnlaunch: {over} by SIGTERM, after 0.3 s by SIGKILL"
    result = json.loads(path.read_text())
    assert (result["status"], result["cause"]) == (TIMED_OUT, "timeout")
    assert {rank["told"] for rank in result["ranks"]} <= {"SIGTERM", "SIGKILL"}


def test_the_time_is_that_of_all_attempts_together(tmp_path: Path):
    again = ("--max-restarts", 10**6, WORKERS / "again.py", 10**6, "exit", 7)
    with launched("--nproc", 1, "--timeout", 1, *again, directory=tmp_path) as one:
        assert one.status() in (TIMED_OUT, 7)  # 7: it came when that worker had failed already


@pytest.mark.parametrize("seconds", LONG)
def test_a_launch_runs_and_ends_with_times_beyond_what_the_kernel_waits_for_at_once(
    seconds: int, tmp_path: Path
):
    times = [word for flag in FLAGS for word in (flag, seconds)]
    # Longer than the guard has shorter times to wait for (supervisor.SETTLED_S).
    fails = ("--no-python", "sh", "-c", "sleep 1.2; exit 5")
    with launched("--nproc", 2, "--max-restarts", 1, *times, *fails, directory=tmp_path) as one:
        assert one.status() == 5, one.stderr
        assert "internal error" not in one.stderr
        assert "restart 1 of 1" in one.stderr


@pytest.mark.parametrize("seconds", LONG)
def test_a_launcher_without_a_guard_waits_for_a_long_time(seconds: int, tmp_path: Path):
    words = ("--nproc", 2, "--grace", seconds, "--timeout", seconds, WORKERS / "catch.py", "TERM")
    with launched(*words, directory=tmp_path, command=WITHOUT_GUARD) as one:
        one.read_until(2)
        one.send(signal.SIGTERM)
        assert one.status() == 85, one.stderr

"""--timeout: the launch ends as by SIGTERM when its time is over, with status 124."""

import json
import signal
from pathlib import Path

import pytest

from spawnlaunch.failures import TIMED_OUT
from tests.support.launching import FAMILY, WITHOUT_GUARD, WORKERS, launch
from tests.support.watching import launched


@pytest.mark.parametrize(
    "words", [(WORKERS / "catch.py", "TERM"), (FAMILY, "daemon", "--", "stay")]
)
def test_workers_are_told_to_end_then_killed_and_124_is_the_status(
    words: tuple[object, ...], tmp_path: Path
):
    path = tmp_path / "result.json"
    flags = ("--nproc", 2, "--timeout", "1", "--grace", "0.3", "--result", path)
    with launched(*flags, *words, directory=tmp_path) as one:
        assert one.status() == TIMED_OUT
        assert one.all_gone()
        first = one.stderr.splitlines()[0]
    over = "the time of the launch is over (--timeout): stopping the workers"
    assert first == f"spawnlaunch: {over} by SIGTERM, after 0.3 s by SIGKILL"
    result = json.loads(path.read_text())
    assert (result["status"], result["cause"]) == (TIMED_OUT, "timeout")
    assert {rank["told"] for rank in result["ranks"]} <= {"SIGTERM", "SIGKILL"}


def test_a_launch_that_ends_in_time_keeps_its_status():
    assert launch("--nproc", 1, "--timeout", 60, "--no-python", "true").returncode == 0
    done = launch("--nproc", 1, "--timeout", 60, WORKERS / "fail.py", 0, "exit", 5)
    assert done.returncode == 5


def test_the_time_is_that_of_all_attempts_together(tmp_path: Path):
    again = ("--max-restarts", 10**6, WORKERS / "again.py", 10**6, "exit", 7)
    with launched("--nproc", 1, "--timeout", 1, *again, directory=tmp_path) as one:
        assert one.status() in (TIMED_OUT, 7)  # 7: it came when that worker had failed already


def test_a_launcher_without_a_guard_keeps_the_time(tmp_path: Path):
    words = ("--nproc", 2, "--timeout", "0.5", WORKERS / "sleep.py")
    with launched(*words, directory=tmp_path, command=WITHOUT_GUARD) as one:
        assert one.status() == TIMED_OUT


def test_a_signal_that_came_first_is_the_status(tmp_path: Path):
    words = ("--nproc", 1, "--timeout", 1, "--grace", "1.3")
    with launched(*words, FAMILY, "--", "stay", directory=tmp_path) as one:
        one.read_until(1)
        one.send(signal.SIGTERM)
        assert one.status() == 128 + signal.SIGTERM

"""A guard that somebody has stopped, or holds, and a launcher that is stopped."""

import signal
import sys
from pathlib import Path

import pytest

from tests.support.launching import FAMILY, WORKERS
from tests.support.processes import hold_by_a_debugger, state, until
from tests.support.watching import KILLED, launched

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is a guard on Linux only")

SLEEP = WORKERS / "sleep.py"


def test_a_guard_that_is_stopped_is_continued_and_it_is_said(tmp_path: Path):
    with launched("--nproc", 2, FAMILY, "--", "0:exit", 0, directory=tmp_path) as launch:
        guard = launch.guard
        launch.read_until(1)
        for count in (1, 2):
            launch.send(signal.SIGSTOP, guard)
            said = f"the guard (pid {guard}) was stopped: continued it"
            until(lambda n=count, said=said: launch.stderr.count(said) == n, "it is said")
            until(lambda: state(guard) in "SR", "it goes on")
        launch.send(signal.SIGSTOP, guard)
        launch.send(signal.SIGTERM)  # is heeded at once
        assert launch.status() == 128 + signal.SIGTERM


def test_a_launcher_that_is_killed_while_its_guard_is_stopped_leaves_nothing(tmp_path: Path):
    with launched("--nproc", 2, FAMILY, "session", directory=tmp_path) as launch:
        launch.read_until(2)
        guard = launch.guard
        launch.send(signal.SIGSTOP, guard)
        until(lambda: state(guard) == "T", "it is stopped")
        launch.send(signal.SIGKILL)
        assert launch.status() == KILLED


def test_a_launcher_or_a_job_that_is_stopped_is_left_so(tmp_path: Path):
    """Slurm's `scontrol suspend` stops every process of a job, and later continues every one."""
    with launched("--nproc", 2, SLEEP, directory=tmp_path) as launch:
        launch.read_until(2)
        everybody = [*launch.workers, launch.guard, launch.pid]
        # All first: a launcher that goes on has its workers continued, at a time that nobody sees.
        for stopped in (everybody, [launch.pid]):
            for pid in stopped:
                launch.send(signal.SIGSTOP, pid)
            until(lambda those=stopped: all(state(pid) == "T" for pid in those), "all are stopped")
            assert all(state(pid) in "SR" for pid in everybody if pid not in stopped)
            for pid in reversed(stopped):
                launch.send(signal.SIGCONT, pid)
            until(lambda: all(state(pid) in "SR" for pid in everybody), "all go on")
        launch.send(signal.SIGSTOP)
        until(lambda: state(launch.pid) == "T", "it is stopped")
        launch.send(signal.SIGTERM)
        assert state(launch.pid) == "T"
        launch.send(signal.SIGCONT)
        assert launch.status() == 128 + signal.SIGTERM
        assert "was stopped" not in launch.stderr


def test_a_guard_that_a_debugger_holds_is_replaced_when_it_is_told_to_end(tmp_path: Path):
    with launched(
        "--nproc", 2, "--grace", 0, FAMILY, "session", "naked", directory=tmp_path
    ) as launch:
        launch.read_until(2)
        guard = launch.guard
        let_go = hold_by_a_debugger(guard)
        assert state(guard) == "t"
        launch.send(signal.SIGTERM)
        try:
            assert launch.status() == KILLED
        finally:
            let_go()
        assert f"guard (pid {guard}) does not react to SIGTERM (a debugger holds" in launch.stderr

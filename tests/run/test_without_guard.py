"""Where the kernel has no subreapers and no pidfds, as on macOS, the launcher watches by itself."""

import signal
from pathlib import Path

import pytest

from tests.support.launching import FAMILY, WITHOUT_GUARD, WORKERS
from tests.support.processes import children, state, until
from tests.support.watching import launched


@pytest.mark.parametrize("nproc", [1, 3])
def test_the_first_failure_ends_the_others(nproc, tmp_path: Path):
    with launched(
        "--nproc", nproc, FAMILY, "plain", "stubborn", "--", "0:exit", 5,
        directory=tmp_path, command=WITHOUT_GUARD,
    ) as launch:  # fmt: skip
        assert launch.status() == 5
        assert launch.all_gone()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_signals_end_the_workers(signum, tmp_path: Path):
    with launched(
        "--nproc", 2, WORKERS / "catch.py", "TERM", directory=tmp_path, command=WITHOUT_GUARD
    ) as launch:
        launch.read_until(2)
        launch.send(signum)
        assert launch.status() == 85


def test_success_is_0_and_the_grace_is_kept(tmp_path: Path):
    with launched(
        "--nproc", 2, "--no-python", "true", directory=tmp_path, command=WITHOUT_GUARD
    ) as one:
        assert one.status() == 0
    with launched(
        "--nproc", 2, "--grace", "0.3", FAMILY, "session", "--", "stay",
        directory=tmp_path, command=WITHOUT_GUARD,
    ) as launch:  # fmt: skip
        launch.read_until(2)
        launch.send(signal.SIGTERM)
        assert launch.status() == 128 + signal.SIGTERM
        assert launch.all_gone()


def test_job_control_reaches_the_workers(tmp_path: Path):
    with launched(
        "--nproc", 2, WORKERS / "sleep.py", directory=tmp_path, command=WITHOUT_GUARD
    ) as launch:
        launch.read_until(2)
        workers = children(launch.pid)
        assert len(workers) == 2
        launch.send(signal.SIGTSTP)
        until(lambda: {state(pid) for pid in [launch.pid, *workers]} == {"T"}, "all are stopped")
        launch.send(signal.SIGCONT)
        until(lambda: {state(pid) for pid in [launch.pid, *workers]} == {"S"}, "all go on")
        launch.send(signal.SIGTERM)
        assert launch.status() == 128 + signal.SIGTERM

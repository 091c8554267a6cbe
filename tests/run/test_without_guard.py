"""Where the kernel has no subreapers and no pidfds, as on macOS, the launcher watches by itself."""

import signal
from pathlib import Path

import pytest

from spawnlaunch.outcome.failures import TIMED_OUT
from tests.support.launching import FAMILY, WITHOUT_GUARD, WORKERS
from tests.support.matrix import mostly_full
from tests.support.processes import children, state, until
from tests.support.watching import launched

SLEEP = WORKERS / "sleep.py"
ENDS = {
    "one of three fails": (("--nproc", 3, FAMILY, "plain", "stubborn", "--", "0:exit", 5), 5),
    "all fail once": (("--nproc", 2, "--max-restarts", 1, WORKERS / "again.py", 1, "exit", 7), 0),
    "all end well": (("--nproc", 2, "--no-python", "true"), 0),
    "one fails": (("--nproc", 1, FAMILY, "plain", "stubborn", "--", "0:exit", 5), 5),
    "the time is over": (("--nproc", 2, "--timeout", "0.5", SLEEP), TIMED_OUT),
}


@pytest.mark.parametrize("how", mostly_full(ENDS, 2))
def test_a_launch_ends_with_the_right_status_and_leaves_nothing(how: str, tmp_path: Path):
    words, status = ENDS[how]
    with launched(*words, directory=tmp_path, command=WITHOUT_GUARD) as one:
        assert one.status() == status, one.stderr


STOP = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT]


@pytest.mark.parametrize("signum", mostly_full(STOP))
def test_signals_end_the_workers(signum, tmp_path: Path):
    words = ("--nproc", 2, WORKERS / "catch.py", "TERM")
    with launched(*words, directory=tmp_path, command=WITHOUT_GUARD) as one:
        one.read_until(2)
        one.send(signum)
        assert one.status() == 85


def test_the_grace_is_kept(tmp_path: Path):
    words = ("--nproc", 2, "--grace", "0.3", FAMILY, "session", "--", "stay")
    with launched(*words, directory=tmp_path, command=WITHOUT_GUARD) as one:
        one.read_until(2)
        one.send(signal.SIGTERM)
        assert one.status() == 128 + signal.SIGTERM


def test_job_control_reaches_the_workers(tmp_path: Path):
    with launched("--nproc", 2, SLEEP, directory=tmp_path, command=WITHOUT_GUARD) as one:
        one.read_until(2)
        workers = children(one.pid)
        assert len(workers) == 2
        everybody = (one.pid, *workers)
        for signum, becomes in ((signal.SIGTSTP, "T"), (signal.SIGCONT, "S")):
            one.send(signum)
            until(lambda to=becomes: {state(pid) for pid in everybody} == {to}, "all have heard")
        one.send(signal.SIGTERM)
        assert one.status() == 128 + signal.SIGTERM

"""Times beyond what the kernel can wait for at once, 24 days, are waited for as any other."""

import signal
from pathlib import Path

import pytest

from tests.support.launching import WITHOUT_GUARD, WORKERS, launch
from tests.support.watching import launched

LONG = (2147484, 10**20)  # one second more than 2**31 ms; and what no clock will reach
FLAGS = ("--timeout", "--grace", "--hang-timeout", "--restart-window")


@pytest.mark.parametrize("seconds", LONG)
def test_a_launch_runs_and_ends_with_long_times(seconds: int, tmp_path: Path):
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


@pytest.mark.parametrize(
    ("flag", "seconds"),
    [*((flag, "9" * 400) for flag in FLAGS), *(("--grace", word) for word in ("1e400", "nan"))],
)
def test_what_is_no_time_is_refused(flag: str, seconds: str):
    done = launch("--quiet", "--nproc", 1, flag, seconds, "--no-python", "true")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert flag in line
    assert "time in seconds" in line

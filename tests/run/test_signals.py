"""Signals to the launcher and to its guard: which end the job, which go on to the workers."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.launching import FAMILY, HOST, WORKERS
from tests.support.processes import state, until
from tests.support.watching import KILLED, launched

CATCH, SLEEP = WORKERS / "catch.py", WORKERS / "sleep.py"
STOP = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT]


@pytest.mark.parametrize("signum", STOP)
def test_workers_that_save_and_end_alike_decide_the_status(signum, tmp_path: Path):
    with launched("--nproc", 2, CATCH, "TERM", directory=tmp_path) as launch:
        launch.read_until(2)
        launch.send(signum)
        assert launch.status() == 85
        assert f"got {signum.name}: stopping the workers" in launch.stderr


@pytest.mark.parametrize("signum", STOP)
def test_a_signal_to_the_guard_ends_the_job_as_one_to_the_launcher(signum, tmp_path: Path):
    with launched("--nproc", 2, SLEEP, directory=tmp_path) as launch:
        launch.read_until(2)
        launch.send(signum, launch.guard)
        assert launch.status() == 128 + signum


def test_a_second_SIGINT_kills_at_once(tmp_path: Path):
    with launched(
        "--nproc", 2, "--grace", "1000", FAMILY, "stubborn", "--", "stay", directory=tmp_path
    ) as launch:
        launch.read_until(2)
        launch.send(signal.SIGINT)
        until(lambda: "stopping the workers" in launch.stderr, "the first one is understood")
        time.sleep(0.1)
        assert launch.launcher.poll() is None
        launch.send(signal.SIGINT)
        assert launch.status() == 128 + signal.SIGINT
        assert "SIGINT again: killing the workers" in launch.stderr


def test_the_grace_ends_with_SIGKILL_for_whole_trees(tmp_path: Path):
    with launched(
        "--nproc", 2, "--grace", "0.3", FAMILY, "stubborn", "session", "--", "stay",
        directory=tmp_path,
    ) as launch:  # fmt: skip
        launch.read_until(2)
        launch.send(signal.SIGTERM)
        assert launch.status() == 128 + signal.SIGTERM
        assert f"ranks 0-1 on {HOST} still ran after 0.3" in launch.stderr


def test_SIGUSR1_reaches_the_workers_that_catch_it_and_kills_nobody(tmp_path: Path):
    script = tmp_path / "one_of_two.py"
    script.write_text(
        "import os, sys, runpy\n"
        "sys.argv = ['catch.py', 'TERM'] + (['USR1', 'USR2', 'WINCH'] if os.environ['RANK'] == '1'"
        f" else [])\nrunpy.run_path({str(CATCH)!r})\n"
    )
    with launched("--nproc", 2, script, directory=tmp_path) as launch:
        launch.read_until(2)
        for name in ("SIGUSR1", "SIGUSR2", "SIGWINCH"):
            launch.send(signal.Signals[name], launch.guard)
            launch.send(signal.Signals[name])
            launch.read_until(1, f"{name} 1")
        launch.send(signal.SIGTERM)
        assert launch.status() == 85
        assert b"SIGUSR1 0" not in launch.output


@pytest.mark.parametrize("nproc", [1, 2])
def test_SIGTSTP_stops_the_workers_and_SIGCONT_continues_them(nproc, tmp_path: Path):
    with launched("--nproc", nproc, SLEEP, directory=tmp_path) as launch:
        launch.read_until(nproc)
        workers = launch.workers
        launch.send(signal.SIGTSTP)
        until(lambda: all(state(pid) == "T" for pid in [launch.pid, *workers]), "all are stopped")
        launch.send(signal.SIGCONT)
        until(lambda: all(state(pid) == "S" for pid in [launch.pid, *workers]), "all go on")
        launch.send(signal.SIGTSTP)
        until(lambda: all(state(pid) == "T" for pid in [launch.pid, *workers]), "all are stopped")
        launch.send(signal.SIGTERM)
        launch.send(signal.SIGCONT)
        assert launch.status() == 128 + signal.SIGTERM


@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_the_parent_had_ignored_stays_ignored(signum, tmp_path: Path):
    def nohup() -> None:
        signal.signal(signum, signal.SIG_IGN)

    with launched("--nproc", 2, SLEEP, directory=tmp_path, preexec=nohup) as launch:
        launch.read_until(2)
        for pid in (launch.guard, *launch.workers, launch.pid):
            launch.send(signum, pid)
            assert ignores(pid, signum)
        assert len(launch.workers) == 2
        launch.send(signal.SIGTERM)
        assert launch.status() == 128 + signal.SIGTERM
        assert signum.name not in launch.stderr


def ignores(pid: int, signum: int) -> bool:
    """Python itself never ignores these two."""
    (mask,) = (
        line.split()[1]
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("SigIgn:")
    )
    return bool(int(mask, 16) >> (signum - 1) & 1)


def test_workers_start_with_the_signal_mask_and_dispositions_of_the_launcher(tmp_path: Path):
    grep = ["grep", "Sig[BI]", "/proc/self/status"]
    with launched("--nproc", 1, "--no-python", *grep, directory=tmp_path) as launch:
        assert launch.status() == 0
        launch.all_gone()
    # What the tests themselves were started with may have signals ignored.
    expected = subprocess.run(grep, capture_output=True, check=True).stdout
    assert launch.output == expected


def test_the_signals_of_a_whole_job_step_come_to_all_processes_at_once(tmp_path: Path):
    """scancel sends a signal to every process of a step, the guard and the workers included."""
    with launched("--nproc", 2, CATCH, "TERM", directory=tmp_path) as launch:
        launch.read_until(2)
        for pid in (launch.guard, launch.pid, *launch.workers):
            with suppress(ProcessLookupError):  # the guard may have ended a worker already
                os.kill(pid, signal.SIGTERM)
        assert launch.status() == 85


def test_one_SIGINT_to_launcher_and_guard_is_not_two(tmp_path: Path):
    with launched("--nproc", 2, "--grace", 1, FAMILY, "--", "stay", directory=tmp_path) as launch:
        launch.read_until(2)
        for pid in (launch.guard, launch.pid):
            launch.send(signal.SIGINT, pid)
        assert launch.status() == 128 + signal.SIGINT
        assert "again" not in launch.stderr
        assert "still ran after 1 s" in launch.stderr


def test_a_worker_killed_from_outside_is_a_failure(tmp_path: Path):
    with launched("--nproc", 2, SLEEP, directory=tmp_path) as launch:
        launch.read_until(2)
        launch.send(signal.SIGKILL, launch.workers[0])
        assert launch.status() == KILLED
        assert "died of SIGKILL; stopping rank 1" in launch.stderr


# A finder of modules that takes its time with one of the standard library's.
SLOW = """
import os, runpy, sys, time

class Slow:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "__future__":
            os.write(1, b"ready\\n")
            time.sleep(600)

sys.modules.pop("__future__", None)
sys.meta_path.insert(0, Slow)
sys.argv[0] = "spawnlaunch"
runpy.run_module("spawnlaunch", run_name="__main__", alter_sys=True)
"""


def test_CTRL_C_while_the_launcher_is_imported_leaves_no_traceback_of_ours(tmp_path: Path):
    command = (sys.executable, "-c", SLOW)
    with launched("--nproc", 1, SLEEP, directory=tmp_path, command=command) as launch:
        launch.read_until(1)
        launch.send(signal.SIGINT)
        assert launch.status() == 128 + signal.SIGINT
        assert launch.stderr == ""

"""Time in which a process could not run is not its fault: no patience with it runs meanwhile.

What each patience is, and what stops whom when, is played in tests/machine; here one real launch
shows that all of it is wired, and what only the kernel can show.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from spawnlaunch.failures import TIMED_OUT
from tests.support.launching import WORKERS
from tests.support.processes import everybody, hold_by_a_debugger, state, until
from tests.support.watching import Launch, launched

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is a guard on Linux only")

PATIENT = WORKERS / "patient.py"
PATIENCE_S = 4.0  # of the launch, with silence and with workers that save
GAP_S = PATIENCE_S + 1.7


def told_to_end(one: Launch) -> None:
    one.read_until(2)
    one.send(signal.SIGTERM)
    one.read_until(2, "saving")


def stop_for_a_time(one: Launch) -> None:
    """All of it, for longer than anybody has patience; launcher and guard go on first."""
    pids = everybody(one.pid)
    for pid in reversed(pids):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(GAP_S)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        if pid == pids[1]:
            time.sleep(0.2)  # for the guard to do what it thinks is due


def test_workers_have_their_whole_time_though_all_were_stopped(tmp_path: Path):
    go = tmp_path / "go"
    words = ("--hang-timeout", PATIENCE_S, "--on-hang", "kill", "--grace", PATIENCE_S)
    with launched("--nproc", 2, *words, PATIENT, go, directory=tmp_path) as one:
        one.read_until(2)
        stop_for_a_time(one)
        told_to_end(one)
        stop_for_a_time(one)
        one.send(signal.SIGTSTP)
        until(lambda: state(one.pid) == "T", "the launcher is stopped")
        time.sleep(GAP_S)
        go.touch()
        one.send(signal.SIGCONT)
        assert one.status() == 85, one.stderr
        assert one.output.count(b"saved") == 2
        assert "no output" not in one.stderr


def hold_by_a_signal(pid: int) -> Callable[[], None]:
    os.kill(pid, signal.SIGSTOP)
    return lambda: os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(
    "hold", [hold_by_a_signal, pytest.param(hold_by_a_debugger, marks=pytest.mark.full)]
)
def test_a_launcher_that_is_held_for_longer_than_it_was_to_wait_goes_on(hold, tmp_path: Path):
    """sigtimedwait of Python tells of a signal then that nobody has sent."""
    go = tmp_path / "go"
    with launched("--nproc", 2, PATIENT, go, directory=tmp_path) as launch:
        launch.read_until(2)
        launch.send(signal.SIGCONT)  # it looks after the guard a second later
        time.sleep(0.3)
        let_go = hold(launch.pid)
        time.sleep(1.5)
        let_go()
        told_to_end(launch)
        go.touch()
        assert launch.status() == 85, launch.stderr
        assert launch.stderr.count("\n") == 1


@pytest.mark.parametrize("is_told_first", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_worker_that_is_stopped_and_told_to_end_is_continued(is_told_first, tmp_path: Path):
    go = tmp_path / "go"
    with launched("--nproc", 2, PATIENT, go, directory=tmp_path) as launch:
        launch.read_until(2)
        worker = launch.workers[0]
        if is_told_first:
            told_to_end(launch)
        launch.send(signal.SIGSTOP, worker)
        until(lambda: state(worker) == "T", "it is stopped")
        if not is_told_first:
            told_to_end(launch)
        until(lambda: state(worker) in "SR", "it goes on")
        go.touch()
        assert launch.status() == 85, launch.stderr


def test_a_rank_that_is_stopped_is_no_hang_until_what_is_said_to_type_continues_it(tmp_path: Path):
    flags = ("--hang-timeout", 3, "--on-hang", "kill", "--grace", 0.2)
    words = ("--no-python", "sh", "-c", "echo ready; exec sleep 600")
    with launched("--nproc", 2, *flags, *words, directory=tmp_path) as launch:
        launch.read_until(2)
        worker = launch.workers[1]
        launch.send(signal.SIGSTOP, worker)
        until(lambda: "no hang is looked for" in launch.stderr, "it is said")
        said = launch.stderr.strip()
        typed = f"type kill -CONT {worker}"
        assert f"while rank 1 (pid {worker}) is stopped; {typed}" in said
        os.system(typed.removeprefix("type "))
        assert launch.status() == TIMED_OUT
        assert launch.stderr.startswith(said)
        assert launch.stderr.count("no hang is looked for") == 1


def test_what_the_resource_manager_limits_does_not_stand(tmp_path: Path):
    """Slurm kills after KillWait, whoever is stopped: the workers are ended before."""
    conf = tmp_path / "slurm.conf"
    conf.write_text("KillWait=4\n")
    slurm = {"SLURM_JOB_ID": "1", "SLURMD_NODENAME": "node0", "SLURM_CONF": str(conf)}
    words = ("--standalone", "--nproc", 2, "--grace", 1.5, PATIENT, tmp_path / "never")
    with launched(*words, directory=tmp_path, environ=slurm) as launch:
        told_to_end(launch)
        launch.send(signal.SIGTSTP)
        until(lambda: state(launch.pid) == "T", "the launcher is stopped")
        guard = launch.guard
        until(lambda: state(guard) == "Z", "the guard has killed the workers, and ended")
        launch.send(signal.SIGCONT)
        assert launch.status() == 128 + signal.SIGTERM, launch.stderr

"""Time in which a process could not run is not its fault: no patience with it runs meanwhile.

What each patience is, and what stops whom when, is played in tests/machine; here one real launch
shows that all of it is wired, and what only the kernel can show.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.launching import WORKERS
from tests.support.processes import everybody, state, until
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

"""A sample is one process; what that leaves neither holds up the bench nor runs beside the next."""

import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.base import cpuset
from spawnlaunch.bench import forked_sample
from spawnlaunch.binding.apply import Binding
from tests.support.matrix import mostly_full
from tests.support.processes import state, until

MUCH = {str(i): 1.0 for i in range(5000)}  # more than a pipe holds
UNBOUND = Binding(0, None, cpuset.EMPTY, frozenset(), 1, "unknown", "")


def apart(take: Callable[..., forked_sample.Sample], *words: object) -> forked_sample.Sample:
    """By a process without the threads of other tests' torch, as a rank of the bench is."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(take, *words).result()


def taken(left: Path, own_session: bool, signum: int) -> forked_sample.Sample:
    """A sample that leaves a process with the other end of the pipe, as a DataLoader does."""

    def measure(_: object) -> dict[str, Any]:
        child = os.fork()
        if child == 0:
            if own_session:
                os.setsid()
            left.write_text(str(os.getpid()))
            time.sleep(600)
            os._exit(0)
        until(lambda: left.exists() and left.read_text(), "it has begun")
        if signum:
            os.kill(os.getpid(), signum)
        return MUCH

    return forked_sample.of_workload(UNBOUND, measure, lambda: False)


@pytest.mark.parametrize(
    ("own_session", "signum"), mostly_full([(True, signal.SIGKILL), (False, 0), (True, 0)])
)
def test_what_a_sample_leaves_holds_nobody_up(tmp_path: Path, own_session: bool, signum: int):
    left = tmp_path / "left"
    found = apart(taken, left, own_session, int(signum))
    assert found.values == ({} if signum else MUCH), found.error
    assert ("died of SIGKILL" in found.error) == bool(signum)
    pid = int(left.read_text())
    if own_session:  # it has taken itself away, and the launcher's guard ends it
        os.kill(pid, signal.SIGKILL)
    until(lambda: state(pid) in ("", "Z"), "it has ended")


def stopped(left: Path) -> forked_sample.Sample:
    """A command, as a launcher is, that is ended while what it has started has a session."""
    child = f"import os, time; os.setsid(); open({str(left)!r}, 'w').write(str(os.getpid())); "
    command = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r} + "
    command += "'time.sleep(600)'])"
    words = (sys.executable, "-c", command)

    def is_over() -> bool:
        return left.exists() and bool(left.read_text())

    return forked_sample.of_command(words, UNBOUND, os.environ, None, is_over)


def test_what_a_launcher_has_started_ends_with_the_budget(tmp_path: Path):
    left = tmp_path / "left"
    found = apart(stopped, left)
    assert found.error == forked_sample.STOPPED
    until(lambda: state(int(left.read_text())) in ("", "Z"), "it has ended")

"""What launcher and guard cannot end, as they were killed together, and what ends that."""

import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from tests.support.launching import FAMILY, LAUNCHER, ROOT
from tests.support.processes import children, processes_with, state, until
from tests.support.watching import Launch, launched

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is a guard on Linux only")

KINDS = ("session", "daemon", "naked")
PAGE = (ROOT / "docs" / "limits.md").read_text()
NAMESPACE = "unshare --user --map-current-user --pid --fork --kill-child --mount-proc"


def kill_both(launch: Launch, launcher: int) -> None:
    """Launcher and guard: neither has time to do anything."""
    (guard,) = children(launcher)
    launch.send(signal.SIGSTOP, launcher)
    launch.send(signal.SIGKILL, guard)
    launch.send(signal.SIGKILL, launcher)


def test_workers_die_with_launcher_and_guard_and_what_they_have_started_runs_on(tmp_path: Path):
    mark = f"LEFT={tmp_path}"
    with launched(
        "--nproc", 2, FAMILY, "session", directory=tmp_path, environ={"LEFT": str(tmp_path)}
    ) as launch:
        launch.read_until(2)
        workers = launch.workers
        kill_both(launch, launch.pid)
        until(lambda: not any(map(state, workers)), "the workers have died")
        left = processes_with(mark)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert len(left) == 2
        for directory in (tmp_path / "tmp").glob("spawnlaunch-*"):
            directory.rmdir()


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="not every machine lets a user have namespaces")
def test_a_PID_namespace_ends_what_is_left(tmp_path: Path):
    assert f"{NAMESPACE} spawnlaunch" in " ".join(PAGE.split())
    command = (*shlex.split(NAMESPACE), *LAUNCHER)
    with launched("--nproc", 2, FAMILY, *KINDS, directory=tmp_path, command=command) as launch:
        launch.read_until(2)
        kill_both(launch, children(launch.pid)[0])
        assert launch.all_gone()
        for directory in (tmp_path / "tmp").glob("spawnlaunch-*"):
            directory.rmdir()

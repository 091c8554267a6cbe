"""What launcher and guard cannot end, as they were killed together, and what ends that."""

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster import configuration
from tests.cluster.slurm import Slurm, require_slurm, start
from tests.support.launching import FAMILY, LAUNCHER, ROOT
from tests.support.processes import children, processes_with, state, until
from tests.support.watching import Launch, launched

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is a guard on Linux only")

KINDS = ("session", "daemon", "naked")
PAGE = (ROOT / "docs" / "limits.md").read_text()
NAMESPACE = "unshare --user --map-current-user --pid --fork --kill-child --mount-proc"
FREEZER = Path("/sys/fs/cgroup/freezer")


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
    assert f"{NAMESPACE} python -m spawnlaunch" in " ".join(PAGE.split())
    command = (*shlex.split(NAMESPACE), *LAUNCHER)
    with launched("--nproc", 2, FAMILY, *KINDS, directory=tmp_path, command=command) as launch:
        launch.read_until(2)
        kill_both(launch, children(launch.pid)[0])
        assert launch.all_gone()
        for directory in (tmp_path / "tmp").glob("spawnlaunch-*"):
            directory.rmdir()


@pytest.fixture
def slurm_with_cgroups(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """A cluster that tracks processes by control groups, as most do, and not by their parents."""
    require_slurm()
    if not FREEZER.is_dir() or not os.access(FREEZER, os.W_OK):
        pytest.skip("needs the freezer of cgroup version 1")

    def files(shape: configuration.Shape, usual=configuration.files) -> dict[str, str]:
        given = usual(shape)
        tracked = given[configuration.CONF].replace("proctrack/linuxproc", "proctrack/cgroup")
        there = os.path.dirname(configuration.CONF)
        return {
            **given, configuration.CONF: tracked, f"{there}/cgroup.conf": "CgroupPlugin=cgroup/v1\n"
        }  # fmt: skip

    monkeypatch.setattr(configuration, "files", files)
    cluster = start()
    yield cluster
    cluster.stop()
    for node in configuration.NODES:
        for directory, _, _ in os.walk(FREEZER / f"slurm_{node}", topdown=False):
            with suppress(OSError):
                os.rmdir(directory)


KILL_BOTH = """
said=$1; shift
"$@" > $said & launcher=$!
until [ "$(grep -c ready $said)" = 2 ]; do sleep 0.1; done
guard=$(cat /proc/$launcher/task/$launcher/children)
kill -STOP $launcher; kill -KILL $guard $launcher; wait $launcher
"""


@pytest.mark.full
def test_a_slurm_step_with_cgroups_ends_what_is_left(slurm_with_cgroups: Slurm, tmp_path: Path):
    said, mark = tmp_path / "said", f"LEFT={tmp_path}"
    said.touch()
    step = ["srun", "-n1", "-c2", "sh", "-c", KILL_BOTH, "sh", said, *LAUNCHER, "--nproc", 2]
    done = slurm_with_cgroups.run([*step, FAMILY, "session", "daemon"], env={"LEFT": str(tmp_path)})
    assert done.returncode == 128 + signal.SIGKILL, done.stderr
    until(lambda: not processes_with(mark), "the step has ended them")

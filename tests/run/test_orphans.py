"""Nothing is left behind: not of a launcher that is killed, nor of its guard, nor of a worker."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.launching import FAMILY, LAUNCHER, WORKERS, start
from tests.support.processes import children, state
from tests.support.watching import KILLED, launched

KINDS = ("plain", "stubborn", "session", "daemon", "naked")


VICTIMS = [("launcher", signal.SIGKILL), ("guard", signal.SIGKILL)]


@pytest.mark.parametrize(("victim", "signum"), VICTIMS)
def test_a_launcher_or_a_guard_that_is_killed_takes_everything_with_it(
    victim: str, signum: signal.Signals, tmp_path: Path
):
    with launched("--nproc", 2, FAMILY, *KINDS, "--", "stay", directory=tmp_path) as launch:
        launch.read_until(2)
        launch.send(signum, launch.pid if victim == "launcher" else launch.guard)
        assert launch.status() == 128 + signum
        is_said = f"died of {signum.name}: ended the workers" in launch.stderr
        assert is_said == (victim == "guard")


def test_children_that_the_launcher_had_before_are_not_touched():
    """A shell that becomes the launcher by exec hands its background processes on."""
    words = " ".join([*LAUNCHER, "--quiet", "--nproc", "1", str(WORKERS / "sleep.py")])
    bystander = "sh -c 'sleep 601 & sleep 602' & "
    script = f"exec 3>&1 4>&-; {bystander} echo $!; exec {words}"
    with start("sh", "-c", script, stderr=subprocess.DEVNULL, start_new_session=True) as launcher:
        assert launcher.stdout
        before = int(launcher.stdout.readline())
        try:
            assert launcher.stdout.readline().startswith("ready")
            (guard,) = (pid for pid in children(launcher.pid) if pid != before)
            os.kill(guard, signal.SIGKILL)
            launcher.wait(100)
            assert state(before) == "S"
        finally:
            os.killpg(launcher.pid, signal.SIGKILL)
    assert launcher.returncode == KILLED


def test_a_child_of_before_is_reaped_and_the_guard_says_in_ps_whose_it_is(tmp_path: Path):
    child = "import os, sys; os.fork() or os._exit(0); os.execv(sys.argv[1], sys.argv[1:])"
    before = (sys.executable, "-c", child)
    with launched(
        "--nproc", 1, WORKERS / "sleep.py", directory=tmp_path, command=(*before, *LAUNCHER)
    ) as launch:
        launch.read_until(1)
        assert len(children(launch.pid)) == 1, "the guard"
        line = Path(f"/proc/{launch.guard}/cmdline").read_bytes().rstrip(b"\0").decode()
        assert line == f"spawnlaunch guard of {launch.pid}"
        assert Path(f"/proc/{launch.guard}/comm").read_text().startswith("spawnlaunch")
        launch.send(signal.SIGTERM)
        assert launch.status() == 128 + signal.SIGTERM


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_launcher_that_ignores_the_end_of_children_still_sees_it(tmp_path: Path):
    def ignore() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    with launched(
        "--nproc", 2, FAMILY, "--", "0:exit", 3, directory=tmp_path, preexec=ignore
    ) as launch:
        assert launch.status() == 3

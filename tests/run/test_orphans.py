"""Nothing is left behind: not of a launcher that is killed, nor of its guard, nor of a worker."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.launching import FAMILY, LAUNCHER, WORKERS, start
from tests.support.matrix import mostly_full
from tests.support.processes import children, state, until
from tests.support.watching import KILLED, launched

KINDS = ("plain", "stubborn", "session", "daemon", "naked")


VICTIMS = mostly_full(
    [
        ("launcher", signal.SIGKILL),
        ("guard", signal.SIGKILL),
        *(("launcher", each) for each in (signal.SIGSEGV, signal.SIGABRT)),
        *(("guard", each) for each in (signal.SIGSEGV, signal.SIGABRT)),
    ],
    2,
)


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


@pytest.mark.parametrize("nproc", mostly_full([3, 1]))
def test_what_a_failing_worker_has_started_goes_with_it(nproc, tmp_path: Path):
    words = ("--nproc", nproc, FAMILY, *KINDS, "--", "0:exit", 5)
    with launched(*words, directory=tmp_path) as launch:
        assert launch.status() == 5


def test_what_a_worker_leaves_that_ended_well_goes_on_while_the_others_run(tmp_path: Path):
    script = tmp_path / "leave.py"
    script.write_text(
        "import os, subprocess, time\n"
        "if os.environ['RANK'] == '0':\n"
        "    left = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "    os.write(1, f'ready {left.pid} {os.getpid()}\\n'.encode())\n"
        "    os._exit(0)\n"
        "time.sleep(600)\n"
    )
    with launched("--nproc", 2, script, directory=tmp_path) as launch:
        launch.read_until(1)
        left, rank_0 = map(int, launch.output.split()[1:3])
        until(lambda: state(rank_0) == "", "rank 0 is reaped")
        assert left in launch.workers
        launch.send(signal.SIGTERM)
        assert launch.status() == 128 + signal.SIGTERM
        assert state(left) == ""


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

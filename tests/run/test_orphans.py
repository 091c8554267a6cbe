"""Nothing is left behind: not of a launcher that is killed, nor of its guard, nor of a worker."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.launching import FAMILY, LAUNCHER, WORKERS, start
from tests.support.processes import children, state, until
from tests.support.watching import KILLED, Launch, launched

KINDS = ("plain", "stubborn", "session", "daemon", "naked")
DEADLY = [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT]


@pytest.mark.parametrize("signum", DEADLY)
def test_a_launcher_that_is_killed_takes_everything_with_it(signum, tmp_path: Path):
    with launched("--nproc", 2, FAMILY, *KINDS, "--", "stay", directory=tmp_path) as launch:
        launch.read_until(2)
        launch.send(signum)
        assert launch.status() == 128 + signum
        assert launch.all_gone()


@pytest.mark.parametrize("signum", DEADLY)
def test_a_guard_that_is_killed_takes_everything_with_it(signum, tmp_path: Path):
    with launched("--nproc", 2, FAMILY, *KINDS, "--", "stay", directory=tmp_path) as launch:
        launch.read_until(2)
        launch.send(signum, launch.guard)
        assert launch.status() == 128 + signum
        assert launch.all_gone()
        assert f"died of {signum.name}: ended the workers" in launch.stderr


@pytest.mark.full
def test_processes_of_a_dataloader_go_with_the_launcher(tmp_path: Path):
    with launched("--nproc", 1, FAMILY, "loader", directory=tmp_path) as launch:
        launch.read_until(1)
        launch.send(signal.SIGKILL)
        assert launch.all_gone()


@pytest.mark.parametrize("nproc", [1, 3])
def test_what_a_failing_worker_has_started_goes_with_it(nproc, tmp_path: Path):
    with launched(
        "--nproc", nproc, FAMILY, *KINDS, "--", "0:exit", 5, directory=tmp_path
    ) as launch:
        assert launch.status() == 5
        assert launch.all_gone()


# Rank 1 uses its grace; rank 0 waits until it is sure to.
STUBBORN = (
    "import os, signal, subprocess, sys, time\n"
    "if os.environ['RANK'] == '1':\n"
    "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "    open(sys.argv[1], 'w').close()\n"
    "    time.sleep(600)\n"
    "while not os.path.exists(sys.argv[1]):\n"
    "    time.sleep(0.01)\n"
)


def what_rank_0_leaves_is_killed(launch: Launch) -> None:
    """It has told its pid, and failed; rank 1 runs on."""
    launch.read_until(1)
    left = int(launch.output.split()[1])
    until(lambda: state(left) == "", "the orphan is gone, and not a zombie either")
    assert len(launch.workers) == 1


@pytest.mark.parametrize(
    "how", ["start_new_session=True", "env={}, preexec_fn=os.setpgrp"], ids=["mark", "session"]
)
def test_what_a_failed_worker_leaves_is_killed_while_the_others_have_their_grace(how, tmp_path):
    """It has kept the worker's mark, or has no environment and has kept the session."""
    script = tmp_path / "leave.py"
    script.write_text(
        STUBBORN + f"left = subprocess.Popen(['sleep', '600'], {how})\n"
        "os.write(1, f'ready {left.pid}\\n'.encode())\n"
        "os._exit(3)\n"
    )
    words = ("--nproc", 2, "--grace", 600, script, tmp_path / "ignores")
    with launched(*words, directory=tmp_path) as launch:
        what_rank_0_leaves_is_killed(launch)


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


def test_an_orphan_that_shows_its_environment_only_later_is_killed(tmp_path: Path):
    """While a program is being executed there is none to be seen; here for longer than usual."""
    script = tmp_path / "leave.py"
    script.write_text(
        STUBBORN + "executed, held = os.pipe()\n"
        "if os.fork():\n"
        "    os.close(held)\n"
        "    os.read(executed, 1)\n"
        "    os._exit(3)\n"
        "os.setsid()\n"
        "os.write(1, f'ready {os.getpid()}\\n'.encode())\n"
        "later = 'sleep 0.3; SPAWNLAUNCH_WORKER=$1 exec sleep 600'\n"
        "words = ['sh', '-c', later, 'sh', os.environ['SPAWNLAUNCH_WORKER']]\n"
        "os.execve('/bin/sh', words, {})\n"
    )
    words = ("--nproc", 2, "--grace", 600, script, tmp_path / "ignores")
    with launched(*words, directory=tmp_path) as launch:
        what_rank_0_leaves_is_killed(launch)


def test_a_daemon_of_a_running_worker_is_left_alone(tmp_path: Path):
    with launched("--nproc", 2, FAMILY, "naked", "--", "0:exit", 0, directory=tmp_path) as launch:
        launch.read_until(1)
        until(lambda: len(launch.workers) == 3, "rank 0 has ended, rank 1 and two daemons run")
        launch.send(signal.SIGINT)
        assert launch.status() == 128 + signal.SIGINT


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


def test_a_child_that_ended_before_the_launcher_began_is_reaped(tmp_path: Path):
    child = "import os, sys; os.fork() or os._exit(0); os.execv(sys.argv[1], sys.argv[1:])"
    before = (sys.executable, "-c", child)
    with launched(
        "--nproc", 1, WORKERS / "sleep.py", directory=tmp_path, command=(*before, *LAUNCHER)
    ) as launch:
        launch.read_until(1)
        assert len(children(launch.pid)) == 1, "the guard"
        launch.send(signal.SIGTERM)
        assert launch.status() == 128 + signal.SIGTERM


def test_the_guard_says_in_ps_whose_it_is(tmp_path: Path):
    with launched("--nproc", 1, WORKERS / "sleep.py", directory=tmp_path) as launch:
        launch.read_until(1)
        line = Path(f"/proc/{launch.guard}/cmdline").read_bytes().rstrip(b"\0").decode()
        assert line == f"spawnlaunch guard of {launch.pid}"
        assert Path(f"/proc/{launch.guard}/comm").read_text().startswith("spawnlaunch")


def test_workers_of_several_lead_sessions_and_a_single_one_stays_in_the_launchers_group(tmp_path):
    for nproc in (1, 2):
        with launched("--nproc", nproc, WORKERS / "sleep.py", directory=tmp_path) as launch:
            launch.read_until(nproc)
            workers = launch.workers
            assert len(workers) == nproc
            for pid in workers:
                leader = os.getpgid(launch.pid) if nproc == 1 else pid
                assert os.getpgid(pid) == leader
            launch.send(signal.SIGTERM)
            launch.status()


def test_a_launcher_killed_again_and_again_while_it_starts_leaves_nothing(tmp_path: Path):
    for i in range(20):
        with launched("--nproc", 3, FAMILY, "session", directory=tmp_path) as launch:
            time.sleep(0.01 * i)
            launch.send(signal.SIGKILL)
            assert launch.all_gone()


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_launcher_that_ignores_the_end_of_children_still_sees_it(tmp_path: Path):
    def ignore() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    with launched(
        "--nproc", 2, FAMILY, "--", "0:exit", 3, directory=tmp_path, preexec=ignore
    ) as launch:
        assert launch.status() == 3

"""Signals to the launcher and to its guard: which end the job, which go on to the workers."""

import signal
import sys
from pathlib import Path

import pytest

from tests.support.launching import WORKERS
from tests.support.matrix import mostly_full
from tests.support.processes import state, until
from tests.support.watching import launched

CATCH, SLEEP = WORKERS / "catch.py", WORKERS / "sleep.py"
STOP = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT]


@pytest.mark.parametrize("nproc", [2, 1])
@pytest.mark.parametrize("signum", mostly_full(STOP, 2))
def test_a_signal_to_the_launcher_ends_the_workers(signum, nproc, tmp_path: Path):
    with launched("--nproc", nproc, SLEEP, directory=tmp_path) as launch:
        launch.read_until(nproc)
        launch.send(signum)
        assert launch.status() == 128 + signum
        assert f"got {signum.name}: stopping the workers" in launch.stderr
        assert "Traceback" not in launch.stderr


@pytest.mark.parametrize("signum", mostly_full(reversed(STOP)))
def test_a_signal_to_the_guard_ends_the_job_as_one_to_the_launcher(signum, tmp_path: Path):
    with launched("--nproc", 2, SLEEP, directory=tmp_path) as launch:
        launch.read_until(2)
        launch.send(signum, launch.guard)
        assert launch.status() == 128 + signum


def test_workers_that_save_within_the_grace_decide_the_status_and_keep_their_children(tmp_path):
    script = tmp_path / "saves.py"
    script.write_text(
        "import os, signal, subprocess, time\n"
        "def save(*_):\n"
        "    time.sleep(0.5)\n"
        "    os.write(1, f'saved, child {child.poll()}\\n'.encode())\n"
        "    os._exit(85)\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "os.write(1, b'ready\\n')\n"
        "time.sleep(600)\n"
    )
    with launched("--nproc", 2, script, directory=tmp_path) as launch:
        launch.read_until(2)
        launch.send(signal.SIGTERM)
        assert launch.status() == 85
        assert launch.output.count(b"saved, child None") == 2


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


@pytest.mark.parametrize("nproc", mostly_full([2, 1]))
def test_SIGTSTP_stops_the_workers_and_SIGCONT_continues_them(nproc, tmp_path: Path):
    with launched("--nproc", nproc, SLEEP, directory=tmp_path) as launch:
        launch.read_until(nproc)
        everybody = [launch.pid, *launch.workers]
        for signum, becomes in (
            (signal.SIGTSTP, "T"),
            (signal.SIGCONT, "S"),
            (signal.SIGTSTP, "T"),
        ):
            launch.send(signum)
            until(lambda to=becomes: {state(pid) for pid in everybody} == {to}, "all have heard")
        launch.send(signal.SIGTERM)
        launch.send(signal.SIGCONT)
        assert launch.status() == 128 + signal.SIGTERM


@pytest.mark.parametrize("signum", mostly_full([signal.SIGHUP, signal.SIGINT]))
def test_a_signal_that_the_parent_had_ignored_stays_ignored(signum, tmp_path: Path):
    def nohup() -> None:
        signal.signal(signum, signal.SIG_IGN)

    with launched("--nproc", 2, SLEEP, directory=tmp_path, preexec=nohup) as launch:
        launch.read_until(2)
        for pid in (launch.guard, *launch.workers, launch.pid):
            launch.send(signum, pid)
            (mask,) = (
                line.split()[1]
                for line in Path(f"/proc/{pid}/status").read_text().splitlines()
                if line.startswith("SigIgn:")
            )
            assert int(mask, 16) >> (signum - 1) & 1
        assert len(launch.workers) == 2
        launch.send(signal.SIGTERM)
        assert launch.status() == 128 + signal.SIGTERM
        assert signum.name not in launch.stderr


# A finder of modules that takes its time with one of the standard library's.
SLOW = """
import os, sys, time

class Slow:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "__future__":
            os.write(1, b"ready\\n")
            time.sleep(600)

sys.modules.pop("__future__", None)
sys.meta_path.insert(0, Slow)
sys.argv[0] = "spawnlaunch"
from spawnlaunch.__main__ import launch
sys.exit(launch())
"""


def test_CTRL_C_while_the_launcher_is_imported_leaves_no_traceback_of_ours(tmp_path: Path):
    command = (sys.executable, "-c", SLOW)
    with launched("--nproc", 1, SLEEP, directory=tmp_path, command=command) as launch:
        launch.read_until(1)
        launch.send(signal.SIGINT)
        assert launch.status() == 128 + signal.SIGINT
        assert launch.stderr == ""

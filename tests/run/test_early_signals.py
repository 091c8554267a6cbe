"""A signal for the workers that comes before there are any ends nothing: it waits.

The launcher signals itself, at the moment that is asked for: when it imports its Nth module or
opens its Nth file after the signals have been blocked.
"""

import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.support.launching import LAUNCHER, ROOT, SLURM_TASK, clean_environ, run
from tests.support.matrix import mostly_full

# Python imports this by itself when it starts.
SITECUSTOMIZE = """
import os, signal, sys

moment, signum = int(os.environ.pop("MOMENT", 0)), int(os.environ.pop("SIGNUM", 1))
word = os.environ["SENT"]
launcher, ours, passed = os.getpid(), False, 0

def at(event, arguments):
    global ours, passed, moment
    if event == "exec" and arguments[0].co_filename.endswith("spawnlaunch/__main__.py"):
        ours = True
    if not ours or event not in ("import", "open") or os.getpid() != launcher:
        return
    if signum not in signal.pthread_sigmask(signal.SIG_BLOCK, ()):
        return
    passed += 1
    if passed == moment:
        with open(word, "w") as file:
            file.write("first" if "spawnlaunch.cli.parsing" not in sys.modules else "later")
        os.kill(launcher, signum)

sys.addaudithook(at)
"""
MOMENTS = mostly_full([1, 20, 90, 2, 5, 10, 40, 60], 3)  # a launch has more than a hundred
USR1, USR2 = signal.SIGUSR1, signal.SIGUSR2
PENDING = (
    "import json, signal; print(json.dumps([sorted(signal.sigpending()), "
    "sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))]))"
)
SHOW = ("--no-python", sys.executable, "-c", PENDING)


def launch_signalled(
    tmp_path: Path, signum: int, moment: int, *words: str, blocked: int = 0, **extra: str
) -> subprocess.CompletedProcess[str]:
    (tmp_path / "sitecustomize.py").write_text(SITECUSTOMIZE)
    extra |= {"MOMENT": str(moment), "SIGNUM": str(int(signum)), "SENT": str(tmp_path / "sent")}
    environ = clean_environ(**extra, PYTHONPATH=f"{tmp_path}:{ROOT}")
    block = partial(signal.pthread_sigmask, signal.SIG_BLOCK, [blocked]) if blocked else None
    done = run(*LAUNCHER, "--quiet", *words, environ=environ, preexec_fn=block)
    assert (tmp_path / "sent").exists(), done.stderr
    return done


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("signum", mostly_full([USR1, USR2]))
def test_a_signal_for_the_workers_ends_no_launcher(signum: int, moment: int, tmp_path: Path):
    done = launch_signalled(tmp_path, signum, moment, "--nproc", "2", "--no-python", "true")
    assert (done.returncode, done.stderr) == (0, "")
    is_first = (tmp_path / "sent").read_text() == "first"
    assert is_first or moment != 1, "they wait from our first line on"


@pytest.mark.parametrize("mode", ["task", "local"])
@pytest.mark.parametrize("blocked", mostly_full([[USR1, signal.SIGALRM], []]))
def test_the_workers_have_the_mask_that_the_launcher_was_started_with(
    blocked: list[int], mode: str
):
    environ = clean_environ(**(SLURM_TASK if mode == "task" else {}))
    block = partial(signal.pthread_sigmask, signal.SIG_SETMASK, blocked)
    done = run(*LAUNCHER, "--quiet", *SHOW, environ=environ, preexec_fn=block)
    assert json.loads(done.stdout) == [[], sorted(blocked)], done.stderr


@pytest.mark.parametrize("moment", MOMENTS)
def test_in_task_mode_they_reach_the_worker(moment: int, tmp_path: Path):
    done = launch_signalled(tmp_path, USR1, moment, *SHOW, **SLURM_TASK)
    assert (done.returncode, done.stdout) == (-USR1, "")


def test_in_task_mode_a_worker_that_blocks_them_finds_them_waiting(tmp_path: Path):
    done = launch_signalled(tmp_path, USR1, 20, *SHOW, blocked=USR1, **SLURM_TASK)
    assert json.loads(done.stdout) == [[USR1], [USR1]], done.stderr

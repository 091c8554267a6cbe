"""Troubles of one launcher: its name server, its own files, a worker that is silent or saves."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from tests.beside.cases import SLEEP, TWO
from tests.beside.launching import CASES, SPAWNLAUNCH, TORCHRUN, Job, Outcome, case, in_words
from tests.gang.mute_names import within_mute_names
from tests.support.launching import WORKERS
from tests.support.processes import everybody

PACKAGES = {TORCHRUN: "torch", SPAWNLAUNCH: "spawnlaunch"}
OTHER = 'raise SystemExit("this is another version")\n'


@case("SIGTERM while a mute name server is asked")
def mute_names(job: Job) -> Outcome:
    within = within_mute_names(job.directory)
    static = ("--nnodes", 2, "--node-rank", 1, "--master-addr", "nonode")
    job.start("a", *static, shell=SLEEP, within=within, NCCL_SOCKET_IFNAME="lo")
    time.sleep(15)  # torchrun does not say that it asks
    job.launchers["a"].terminate()
    statuses, seconds = job.ends()
    return Outcome(in_words(statuses), seconds, statuses["a"] is not None)


@case("nodes differ in --max-restarts, and a rank fails once")
def unlike(job: Job) -> Outcome:
    """All end alike: all refuse to, or all have tried again."""
    shell = '[ "$RANK$TORCHELASTIC_RESTART_COUNT" = 00 ] && exit 3; exec sleep 5'
    for number, name in enumerate("ab"):
        job.gang(name, 2, "--max-restarts", number, shell=shell)
    statuses, seconds = job.ends(since=time.monotonic() + 20.0)  # to import torch, and to sleep
    alike = len(set(statuses.values())) == 1 and None not in statuses.values()
    return Outcome(in_words(statuses), seconds + 20.0, alike)


def hang_flags(job: Job, limit_s: int) -> tuple[object, ...]:
    """torchrun has none like these."""
    ours = ("--hang-timeout", limit_s, "--on-hang", "kill")
    return ours if job.program == SPAWNLAUNCH else ()


@case("the workers hang (torchrun has no --hang-timeout)")
def hang(job: Job) -> Outcome:
    job.start("a", *TWO, *hang_flags(job, 5), shell=SLEEP)
    job.wait_for("a", "ready", 2)
    statuses, seconds = job.ends()
    return Outcome(in_words(statuses), seconds, statuses["a"] is not None)


@case("all are stopped for 10 s (ours with --hang-timeout 5)")
def hang_of_nobody(job: Job) -> Outcome:
    says = "for i in 1 2 3 4 5 6; do echo ready; sleep 1; done"
    job.start("a", *TWO, *hang_flags(job, 5), shell=says)
    job.wait_for("a", "ready", 2)
    pids = everybody(job.launchers["a"].pid)
    for each in pids:
        os.kill(each, signal.SIGSTOP)
    time.sleep(10)
    for each in reversed(pids):
        os.kill(each, signal.SIGCONT)
    statuses, seconds = job.ends()
    return Outcome(in_words(statuses), seconds, statuses == {"a": 0})


@case("the launcher is stopped for 11 s after a rank has failed")
def stopped_after_failure(job: Job) -> Outcome:
    """The other rank saves meanwhile, for longer than that and for less than the grace."""
    go, patient = job.directory / "go", WORKERS / "patient.py"
    shell = f'[ "$RANK" = 0 ] || exec python {patient} {go}; sleep 3; exit 3'
    job.start("a", *TWO, shell=shell)
    job.wait_for("a", "saving")
    pid = job.launchers["a"].pid
    os.kill(pid, signal.SIGSTOP)
    time.sleep(11)
    os.kill(pid, signal.SIGCONT)
    time.sleep(1)
    go.touch()
    statuses, seconds = job.ends()
    saved = job.said("a").count("saved")
    return Outcome(f"{saved} of 1 saved, {in_words(statuses)}", seconds, saved == 1)


def packaged(job: Job) -> tuple[Path, str]:
    """A copy of the launcher's package, of links; and what PYTHONPATH has to be."""
    spec = importlib.util.find_spec(PACKAGES[job.program])
    assert spec
    assert spec.origin
    copy = job.directory / "site" / PACKAGES[job.program]
    copy.parent.mkdir()
    subprocess.run(["cp", "-rsL", Path(spec.origin).parent, copy], check=True)
    return copy, str(copy.parent)


def outlives_its_package(job: Job, takes: str) -> Outcome:
    """A rank fails after its launcher's files were taken: it is named, and all end."""
    copy, path = packaged(job)
    go = job.directory / "go"
    wait = f"until [ -e {go} ]; do sleep 0.1; done"
    shell = f'echo ready; [ "$RANK" = 1 ] || exec sleep 600; {wait}; exit 3'
    job.start("a", *TWO, shell=shell, PYTHONPATH=path)
    job.wait_for("a", "ready", 2)
    time.sleep(3)  # what its end needs is read once the workers have started
    shutil.rmtree(copy)
    if takes == "replaced":
        for file in ("__init__.py", "distributed/__init__.py", "run/__init__.py"):
            (copy / file).parent.mkdir(parents=True, exist_ok=True)
            (copy / file).write_text(OTHER)
    go.touch()
    statuses, seconds = job.ends()
    said = job.said("a")
    named = "failed first: rank 1" in said or ("exitcode" in said and "rank      : 1" in said)
    is_right = statuses["a"] is not None and statuses["a"] > 0 and named
    return Outcome(
        f"{in_words(statuses)}, {'names' if named else 'does not name'} rank 1", seconds, is_right
    )


CASES["the package is removed while it runs"] = lambda job: outlives_its_package(job, "removed")
CASES["the package is replaced while it runs"] = lambda job: outlives_its_package(job, "replaced")

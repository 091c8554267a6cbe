"""A launch on one machine imports no more modules and opens no more files than it once did.

Each module and each file is a look-up on a shared file system, times all ranks. What Python itself
needs, and the modules of its library that are in LIBRARY, are measured in the same run and taken
off, so that the figures hold for other versions of Python and on other machines. Of what belongs
to the kernel (/sys, /proc and /dev, which differ from machine to machine) what reading the node
opens is taken off; tests/node/test_cost.py limits that.

The limits were counted at the commit that brought `make full`. Where one is too low now, save a
module or a file elsewhere before it is raised.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.launching import clean_environ
from tests.support.required import require_programs

require_programs("strace", package="strace")

# What the launch path imports of Python's library; more of it is more than these.
LIBRARY = """
import __future__, argparse, ctypes, gc, runpy, select, signal, zlib, _socket
argparse.ArgumentParser()
"""
READING = "from spawnlaunch import node; node.read()"
WORKER = "worker.py"
# Imported when all workers have ended, or before, where a launch has lasted for some seconds.
FOR_THE_END = re.compile(r"\b_?json\b|\bspawnlaunch.run.(errorfile|report|result|unkillable)\b")
OPENED = re.compile(r'(?:open|openat|openat2|creat)\([^"]*"(.*?)".*= \d+')

# The only task of a step of Slurm on this machine; the number of the job makes the port.
ONE_TASK = {
    "SLURM_JOB_ID": str(os.getpid()),
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_NODELIST": "localhost",
    "SLURM_STEP_TASKS_PER_NODE": "1",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
}


class Opened(NamedTuple):
    """Files and directories that were opened by the launcher, its guard, and workers to be."""

    files: int
    of_the_kernel: int  # kinds of them: how often a process is looked at depends on when it ends


class Way(NamedTuple):
    """A way to launch, and its limits."""

    flags: Sequence[str]
    environ: dict[str, str]
    modules: int  # of spawnlaunch
    opened: int  # of both kinds: what one needs can be saved in the other


WAYS = {
    "two workers": Way(("--nproc", "2"), {}, 86, 83 + 7),
    "one worker": Way(("--nproc", "1"), {}, 86, 83 + 6),
    "a task": Way((), ONE_TASK, 70, 66 + 1),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where launches run, and what they compile is kept: a checkout may have been compiled before
    it was changed, and a file that is not compiled is opened twice."""
    directory = tmp_path_factory.mktemp("counts")
    (directory / WORKER).write_text("")
    return directory


@pytest.mark.parametrize("name", WAYS)
def test_no_more_modules_are_imported(name: str, directory: Path) -> None:
    way = WAYS[name]
    ours = imported(directory, way, *launching(way)) - imported(directory, way, "-c", LIBRARY)
    assert {module for module in ours if not module.startswith("spawnlaunch")} == set()
    assert len(ours) <= way.modules


@pytest.mark.parametrize("name", WAYS)
def test_no_more_files_are_opened(name: str, directory: Path) -> None:
    way = WAYS[name]
    launch = opened(directory, way, *launching(way))
    library, reading = opened(directory, way, "-c", LIBRARY), opened(directory, way, "-c", READING)
    files = launch.files - library.files
    of_the_kernel = launch.of_the_kernel - reading.of_the_kernel
    assert files + of_the_kernel <= way.opened, (launch, library, reading)


def launching(way: Way) -> Sequence[str]:
    return ("-m", "spawnlaunch", *way.flags, WORKER)


def run(directory: Path, way: Way, *command: str) -> subprocess.CompletedProcess[str]:
    compiled = {"PYTHONPYCACHEPREFIX": str(directory / "cache"), "PYTHONDONTWRITEBYTECODE": ""}
    return subprocess.run(
        command,
        cwd=directory,
        env=clean_environ(**compiled, **way.environ),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def imported(directory: Path, way: Way, *words: str) -> set[str]:
    """The names of all modules that Python imports to run these words; a worker tells none."""
    said = run(directory, way, sys.executable, "-X", "importtime", *words).stderr
    names = re.findall(r"^import time: .*\| +(\S+)$", said, re.MULTILINE)
    return {name for name in names if not FOR_THE_END.search(name)}


def opened(directory: Path, way: Way, *words: str) -> Opened:
    """What Python opens to run these words, once all is compiled; a worker's files are its own."""
    run(directory, way, sys.executable, *words)
    trace = directory / "trace"
    calls = "trace=open,openat,openat2,creat,execve"
    strace = ("strace", "-f", "-qq", "-e", "signal=none", "-e", calls, "-o", str(trace))
    run(directory, way, *strace, sys.executable, *words)
    paths = [path for path in paths_of(trace.read_text()) if not FOR_THE_END.search(path)]
    kernel = [path for path in paths if path.startswith(("/sys/", "/proc/", "/dev/"))]
    return Opened(len(paths) - len(kernel), len({re.sub(r"\d+", "N", path) for path in kernel}))


def paths_of(trace: str) -> Iterator[str]:
    """The paths that were opened in what `strace -f` wrote, but not by workers."""
    workers = set()
    begun: dict[str, str] = {}  # calls by pid that a line of another process has interrupted
    for line in trace.splitlines():
        pid, call = line.split(maxsplit=1)
        if call.endswith("<unfinished ...>"):
            begun[pid] = call
            continue
        call = begun.pop(pid, "") + call
        if call.startswith("execve(") and '"-u"' in call:
            workers.add(pid)
        elif pid not in workers and (found := OPENED.match(call)):
            yield found[1]

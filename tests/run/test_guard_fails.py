"""A fault inside the guard, wherever: the launch is cleaned up, and says so."""

import json
import os
import resource
import sys
from pathlib import Path

import pytest

from tests.support.launching import FAMILY
from tests.support.matrix import mostly_full
from tests.support.watching import launched

# The guard's call number N of a function of ours fails, and with ALWAYS every one from then on.
FAILING = """
import os, sys
forks = calls = 0

def count(frame, event, _):
    global calls
    if event == "call" and "/spawnlaunch/" in frame.f_code.co_filename:
        calls += 1
        if calls == {n} or (calls > {n} and {always}):
            raise MemoryError("injected")

def forked():
    global forks
    forks += 1
    sys.setprofile(count if forks == 1 else None)  # in the guard, not in its children

os.register_at_fork(after_in_child=forked)
from spawnlaunch.__main__ import launch
sys.exit(launch())
"""
FAULTS = (1, 55, 144, 233, 2, 3, 5, 8, 13, 21, 34, 70, 89, 110, 130, 170, 200, 260, 300, 377, 450)


@pytest.mark.parametrize(("n", "always"), mostly_full([(n, n % 2 > 0) for n in FAULTS], 4))
def test_a_fault_anywhere_in_the_guard_leaves_nothing_behind(n: int, always: bool, tmp_path: Path):
    result = tmp_path / "result.json"
    command = (sys.executable, "-c", FAILING.format(n=n, always=always))
    words = ("--nproc", 2, "--result", result, FAMILY, "daemon", "naked", "--", "0:exit", 5)
    with launched(*words, directory=tmp_path, command=command) as one:
        status = one.status()
        assert status in (5, os.EX_SOFTWARE), one.stderr
        assert json.loads(result.read_text())["status"] == status
        if status == os.EX_SOFTWARE:
            assert "ended the workers" in one.stderr
            assert json.loads(result.read_text())["cause"] == "guard"
            assert always or n == 1 or "MemoryError" in one.stderr  # the first is before all


@pytest.mark.parametrize("preload", mostly_full(["--preload=json", "--prefix=never"]))
def test_a_guard_that_may_open_no_more_files_leaves_nothing_behind(preload: str, tmp_path: Path):
    result = tmp_path / "result.json"
    words = ("--nproc", 2, "--grace", 1, "--result", result, preload)
    with launched(*words, FAMILY, "daemon", "naked", "--", "stay", directory=tmp_path) as one:
        one.read_until(2)
        _, hard = resource.prlimit(one.guard, resource.RLIMIT_NOFILE)
        resource.prlimit(one.guard, resource.RLIMIT_NOFILE, (3, hard))
        os.kill(one.workers[-1], 9)
        assert one.status() in (os.EX_OSERR, 137), one.stderr
        assert json.loads(result.read_text())["status"] == one.status()


def test_a_worker_whose_status_is_that_of_a_fault_is_no_fault(tmp_path: Path):
    words = ("--nproc", 1, "--no-python", "sh", "-c", f"exit {os.EX_SOFTWARE}")
    with launched(*words, directory=tmp_path) as one:
        assert one.status() == os.EX_SOFTWARE
        assert "guard" not in one.stderr

"""A launcher that is a task of a Slurm step, and a launcher within its worker."""

from __future__ import annotations

import re
import sys

import pytest

from tests.support.launching import clean_environ, launch
from tests.world.resolving import STEP_OF_TWO

STEP_OF_ONE = STEP_OF_TWO | {
    "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": "node1",
    "SLURM_STEP_TASKS_PER_NODE": "1", "SLURM_PROCID": "0", "SLURM_NODEID": "0",
}  # fmt: skip


@pytest.mark.parametrize("flags", [("--nproc", "2"), ()])
def test_a_launcher_within_a_worker_has_a_world_of_its_own(flags: tuple[str, ...]) -> None:
    """A worker has the variables of its launcher, which is the only task on its node."""
    inner = [sys.executable, "-m", "spawnlaunch", *flags, "--no-python", "env"]
    done = launch(
        *("--nproc", 2, "--quiet", "--prefix=never", "--no-python"),
        *inner,
        environ=clean_environ(**STEP_OF_ONE),
    )
    assert done.returncode == 0, done.stderr
    size = flags[-1] if flags else "1"
    assert re.findall(r"\bWORLD_SIZE=(\d)", done.stdout) == [size] * 2 * int(size)


@pytest.mark.parametrize(("flags", "grace_s"), [((), 25), (("--grace", 30), 30)])
def test_workers_have_less_time_to_end_than_slurm_gives_unless_it_is_typed(
    flags: tuple[object, ...], grace_s: int
) -> None:
    words = ("--nproc", 1, "--timeout", 0.1, *flags, "--no-python", "sleep", 600)
    done = launch(*words, environ=clean_environ(**STEP_OF_ONE))
    assert f"by SIGTERM, after {grace_s} s by SIGKILL" in done.stderr

"""A launcher's worker has Slurm's variables as a task has them (srun(1))."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from spawnlaunch.world.identity import LOCAL, NODE, World
from spawnlaunch.world.managers.slurm import Step
from tests.support.launching import clean_environ, explain, launch
from tests.world.resolving import STEP_OF_TWO

# Of a launcher, one for each node of a step of two.
ENVIRON = {
    "SLURM_JOB_ID": "7", "SLURM_NODEID": "1", "SLURM_NNODES": "2", "SLURM_STEP_NUM_NODES": "2",
    "SLURM_NODELIST": "n[1-2]", "SLURM_STEP_NODELIST": "n[1-2]", "SLURMD_NODENAME": "n2",
    "SLURM_CPUS_PER_TASK": "9", "SLURM_CPU_BIND": "cores", "SLURM_GPUS_PER_TASK": "two",
}  # fmt: skip
SECOND = World(NODE, 4, 8, 0, 4, 1, 2, "n1", 29500, "7")


def as_task(world: World, **more: str) -> dict[str, Any]:
    return Step(ENVIRON | more).as_task(world, 1)


@pytest.mark.parametrize(("cpus", "each"), [("9", 2), ("4", 1), ("3", None), ("many", None)])
def test_it_has_its_part_of_what_the_launcher_was_given(cpus: str, each: int | None) -> None:
    made = as_task(SECOND, SLURM_CPUS_PER_TASK=cpus)
    assert made["SLURM_CPUS_PER_TASK"] == each
    assert made["SLURM_GPUS_PER_TASK"] is None
    assert made["SLURM_CPU_BIND"] is None


def test_a_job_of_one_node_within_a_larger_step_is_that_nodes() -> None:
    alone = SECOND._replace(mode=LOCAL, rank=0, world_size=4, node_rank=0, nnodes=1)
    made = as_task(alone)
    assert (made["SLURM_NODEID"], made["SLURM_NNODES"], made["SLURM_STEP_NUM_NODES"]) == (0, 1, 1)
    assert (made["SLURM_NODELIST"], made["SLURM_STEP_NODELIST"]) == ("n2", "n2")
    assert made["SLURM_TASKS_PER_NODE"] == "4"
    nameless = as_task(alone, SLURMD_NODENAME="")
    assert "SLURM_NODELIST" not in nameless


def test_what_is_not_known_of_other_nodes_is_not_set() -> None:
    """One of two nodes has four workers, and the other three."""
    made = as_task(SECOND._replace(rank=3, world_size=7))
    assert (made["SLURM_NTASKS"], made["SLURM_GTIDS"]) == (7, "3,4,5,6")
    per_node = ("SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE")
    assert [made[name] for name in per_node] == [None] * 3


STEP_OF_ONE = STEP_OF_TWO | {
    "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": "node1",
    "SLURM_STEP_TASKS_PER_NODE": "1", "SLURM_PROCID": "0", "SLURM_NODEID": "0",
}  # fmt: skip
SHELL = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node1", "SLURM_JOB_NUM_NODES": "1"}


@pytest.mark.parametrize(
    ("flags", "environ", "second"),
    [
        ("", STEP_OF_ONE, "1"),
        ("--standalone", STEP_OF_TWO, "1"),
        ("--no-rewrite-slurm-env", STEP_OF_ONE, None),
        ("", SHELL | {"SLURM_PROCID": "0"}, None),  # a batch script's, which says nothing
        ("--rewrite-slurm-env", SHELL | {"SLURM_PROCID": "0"}, "1"),
        ("", {}, None),
    ],
)
def test_it_is_what_workers_of_a_launcher_in_a_step_get(
    flags: str, environ: dict[str, str], second: str | None
) -> None:
    found = explain("--nproc", 2, *flags.split(), **environ)
    assert found["workers"][1]["env"].get("SLURM_LOCALID") == second
    assert not any("SLURM_PROCID" in line for line in found["warnings"])


@pytest.mark.parametrize("flags", [("--nproc", "2"), ()])
def test_a_launcher_within_a_worker_has_a_world_of_its_own(flags: tuple[str, ...]) -> None:
    """A worker looks like one of several tasks on its node, which nobody may multiply."""
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

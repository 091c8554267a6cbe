"""With --rewrite-slurm-env a launcher's worker has Slurm's variables as a task (srun(1))."""

from __future__ import annotations

from typing import Any

import pytest

from spawnlaunch.world.identity import LOCAL, NODE, World
from spawnlaunch.world.managers.slurm import STEP

# Of a launcher, one for each node of a step of two.
ENVIRON = {
    "SLURM_JOB_ID": "7", "SLURM_NODEID": "1", "SLURM_NNODES": "2", "SLURM_STEP_NUM_NODES": "2",
    "SLURM_NODELIST": "n[1-2]", "SLURM_STEP_NODELIST": "n[1-2]", "SLURMD_NODENAME": "n2",
    "SLURM_CPUS_PER_TASK": "9", "SLURM_CPU_BIND": "cores", "SLURM_GPUS_PER_TASK": "two",
}  # fmt: skip
SECOND = World(NODE, 4, 8, 0, 4, 1, 2, "n1", 29500, "7")


def as_task(world: World, **more: str) -> dict[str, Any]:
    assert STEP.as_task
    return STEP.as_task(world, 1, ENVIRON | more)


def test_a_worker_counts_as_a_task_of_all_nodes() -> None:
    made = as_task(SECOND)
    assert (made["SLURM_PROCID"], made["SLURM_LOCALID"], made["SLURM_NTASKS"]) == (5, 1, 8)
    assert made["SLURM_GTIDS"] == "4,5,6,7"
    assert made["SLURM_TASKS_PER_NODE"] == "4(x2)"
    assert not made.keys() & {"SLURM_NODEID", "SLURM_NNODES", "SLURM_NODELIST"}


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

"""Variables of Slurm by which its managers are recognised, and what they answer."""

import os
from typing import Any

from spawnlaunch.world.managers import slurm

OWN_JOB = str(os.getpid())  # of which a task's port is chosen: not one of a test beside this one
OF_A_SHELL = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "node1"}
# What `salloc -N2` sets in its shell.
SHELL_OF_TWO_NODES = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_NNODES": "2",
    "SLURM_JOB_NODELIST": "node[0-1]",
    "SLURM_TASKS_PER_NODE": "1(x2)",
}
OF_A_TASK = {**dict.fromkeys(slurm.Step.needs, "0"), "SLURM_JOB_ID": "1"}


def of_task(rank: int, ranks: int, host: str = "node0") -> dict[str, str]:
    """The variables of one of these tasks, which are on one node."""
    return {
        "SLURM_JOB_ID": OWN_JOB, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": str(ranks),
        "SLURM_STEP_TASKS_PER_NODE": str(ranks), "SLURM_STEP_NODELIST": host,
        "SLURM_STEP_NUM_NODES": "1", "SLURM_NODEID": "0", "SLURMD_NODENAME": host,
        "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank),
    }  # fmt: skip


def of_slurm(question: str, **environ: str) -> Any:
    """The answer of a step's task; nothing where it has none."""
    fact = getattr(slurm.Step(environ), question)()
    return fact.value if fact else ()

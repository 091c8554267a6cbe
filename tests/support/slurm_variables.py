"""Variables of Slurm by which its managers are recognised, and what they answer."""

from typing import Any

from spawnlaunch.world.managers import slurm

OF_A_SHELL = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "node1"}
# What `salloc -N2` sets in its shell.
SHELL_OF_TWO_NODES = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_NNODES": "2",
    "SLURM_JOB_NODELIST": "node[0-1]",
    "SLURM_TASKS_PER_NODE": "1(x2)",
}
OF_A_TASK = {**dict.fromkeys(slurm.STEP.needs, "0"), "SLURM_JOB_ID": "1"}


def of_slurm(question: str, **environ: str) -> Any:
    """The answer of a step's task; nothing where it has none."""
    fact = slurm.STEP.answer(question, environ)
    return fact.value if fact else ()

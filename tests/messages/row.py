"""A row of the table: how an error comes about, its three parts, and what to type instead."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

HERE = "python -m spawnlaunch"

# Task 2 of 4 on two nodes, the first of its node, as Slurm exports it.
STEP = {
    "SLURM_JOB_ID": "1000", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NODELIST": "node[0-1]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_PROCID": "2", "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1", "SLURMD_NODENAME": "node1",
}  # fmt: skip
ONE_EACH = {
    **STEP,
    "SLURM_PROCID": "1",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}
SHELL = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "node[0-1]", "SLURM_JOB_NUM_NODES": "2"}


class Row(NamedTuple):
    """An error of the launcher.

    A line that begins with "$ " is typed into a shell as it stands, any other follows --explain.
    Both have a directory with x.py, which does nothing, `two`, the files of a machine with two
    devices, `wsl`, those of one under WSL, and `hosts`, which names one. PORT and PORT2 are free
    ports.
    """

    wrong: str
    seen: str
    why: str
    do: str
    right: str
    environ: Mapping[str, str] = MappingProxyType({})
    prepare: str = ":"  # in the shell, before the wrong line
    mend: str = ":"  # before the right one
    status: int = 2

    def is_read_here(self, line: str, before: str) -> bool:
        """Whether a line of this row can be read in the process of the tests."""
        return not line.startswith("$ ") and before == ":"


def typed(line: str) -> str:
    return line.removeprefix("$ ") if line.startswith("$ ") else f"{HERE} --explain {line}"

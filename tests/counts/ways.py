"""The launches that are counted."""

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.support.launching import clean_environ

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
    "SLURM_GTIDS": "0",
    "SLURMD_NODENAME": "localhost",
}


class Way(NamedTuple):
    """A way to launch a script."""

    flags: Sequence[str]
    variables: Mapping[str, str]

    def words(self, script: str) -> tuple[str, ...]:
        """What a user types behind `python`."""
        return ("-m", "spawnlaunch", *self.flags, script)

    def environ(self, **more: str) -> dict[str, str]:
        """The environment that it is typed in."""
        return clean_environ(**{**self.variables, **more})


WAYS = {
    "two workers": Way(("--nproc", "2"), {}),
    "one worker": Way(("--nproc", "1"), {}),
    "a task": Way((), ONE_TASK),
}

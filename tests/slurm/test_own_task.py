"""Of a job array that task alone goes back into the queue that asks for it."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.slurm.scripts import DIRECTORY, requeue_line

# The last task of an array has the array's number as its job's. Another has a number of its own,
# and so has a job that a task has submitted: it inherits the variables of the array.
LAST = {"SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"}
OTHER = {"SLURM_JOB_ID": "8", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "0"}
NO_ARRAY = {"SLURM_JOB_ID": "7"}
SCRIPTS = {
    "preemptible.sh": (DIRECTORY / "preemptible.sh").read_text(),
    "the line after srun": f"srun; {requeue_line(3)}",
}


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(("job", "asked"), [(LAST, "7_2"), (OTHER, "8"), (NO_ARRAY, "7")])
def test_a_job_asks_for_itself_and_for_no_other_task(
    script: str, job: dict[str, str], asked: str, tmp_path: Path
) -> None:
    """Both programs of Slurm's stand here for themselves: a step that wants to be started anew."""
    for name, text in (("srun", "exit 75"), ("scontrol", 'echo "$@"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.defpath}", **job}
    done = subprocess.run(
        ["bash", "-c", SCRIPTS[script]], env=environ, stdout=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (75, f"requeue {asked}\n")

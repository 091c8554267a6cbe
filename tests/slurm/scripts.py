"""The batch scripts of slurm/, and how tests submit them."""

import os
import sys
import time
from pathlib import Path

from tests.cluster.slurm import Slurm
from tests.support.launching import ROOT
from tests.support.processes import until

DIRECTORY = ROOT / "slurm"
# A real Slurm of the tests runs these; the others need what only their machines have.
GENERIC = (
    *("tasks.sh", "nodes.sh", "spares.sh", "bench.sh", "preemptible.sh", "array.sh"),
    *("container.sh", "bcast.sh"),
)

# A model that trains for so many steps within a few seconds.
STEPS = 150
TINY = ("--device", "cpu", "--layers", "1", "--width", "32", "--context", "32", "--batch-size", "2")
SHORT = (
    *TINY,
    *f"--steps {STEPS} --log-every 1 --eval-every 0 --save-every 20".split(),
)


def environ(**extra: str) -> dict[str, str]:
    """What a user has set who has activated the environment with spawnlaunch."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {"PATH": path, **extra}


def requeue_line(most: int) -> str:
    """The README's line after srun, which restarts a failed job up to `most` times."""
    lines = (DIRECTORY / "README.md").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("status=$?; "))
    return line.replace("-lt 3 ", f"-lt {most} ")


def start_again(slurm: Slurm, job: str) -> None:
    """Have a job that was requeued run again soon: Slurm would let two minutes pass.

    It refuses an attempt in the second in which it revoked the credentials of the last one.
    """
    until(lambda: slurm.job(job)["JobState"] == "PENDING", "the job in the queue")
    time.sleep(2)
    slurm.run(["scontrol", "update", f"JobId={job}", "StartTime=now"])


def sized(nodes: int, tasks: int, gpus: int) -> tuple[str, ...]:
    """Options that make a job of this size of any of the scripts; tasks and GPUs are per node."""
    return (f"--nodes={nodes}", f"--ntasks-per-node={tasks}", f"--gpus-per-node={gpus}")

"""What the launcher costs each rank in task mode: CPU time up to the worker's first line.

    python -m benchmarks.task_mode [ROUNDS]

`srun -n 32 python -m spawnlaunch worker.py` against `srun -n 32 python worker.py`, in turn, in a
real Slurm on this machine. The worker prints time.process_time(), in which exec changes nothing:
it is the CPU time, of user and system, of the process that srun has started. The goal is at most
40 ms more.
"""

import os
import sys
import tempfile
from pathlib import Path
from statistics import median

from tests.cluster.slurm import Slurm, require_slurm, start

TASKS = 32
ROUNDS = 9
GOAL_MS = 40.0
STEP = ["srun", "-N4", f"-n{TASKS}", "--overcommit"]
WORKER = "import time; spent = time.process_time(); print(f'{1e3 * spent:.3f}', flush=True)\n"


def measure(slurm: Slurm, command: list[str]) -> list[float]:
    """Milliseconds of CPU time of every rank."""
    done = slurm.run([*STEP, *command], env={"SLURM_KILL_BAD_EXIT": "1"})
    spent = [float(line) for line in done.stdout.split()]
    if done.returncode != 0 or len(spent) != TASKS:
        raise RuntimeError(f"{done.returncode}: {done.stdout}{done.stderr}")
    return spent


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed launcher is compiled
    require_slurm()
    cluster = start()
    with tempfile.TemporaryDirectory() as folder:
        worker = Path(folder, "worker.py")
        worker.write_text(WORKER)
        alone = [sys.executable, str(worker)]
        launched = [sys.executable, "-m", "spawnlaunch", str(worker)]
        try:
            measure(cluster, launched)  # warms the caches, and compiles
            times = [(measure(cluster, alone), measure(cluster, launched)) for _ in range(rounds)]
        finally:
            cluster.stop()
    first, second = (
        median(median(ranks) for ranks in column) for column in zip(*times, strict=True)
    )
    print(f"srun -n {TASKS} python worker.py                 {first:6.1f} ms of CPU per rank")
    print(f"srun -n {TASKS} python -m spawnlaunch worker.py  {second:6.1f} ms of CPU per rank")
    print(f"difference {second - first:.1f} ms, the goal is at most {GOAL_MS:.0f} ms")


if __name__ == "__main__":
    main()

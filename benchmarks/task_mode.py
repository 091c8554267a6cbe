"""What the launcher costs each rank in task mode: CPU time up to the worker's first line.

    python -m benchmarks.task_mode [--rounds 9] [--write]

`srun -n 32 python -m spawnlaunch worker.py` against `srun -n 32 python worker.py`, in turn, in a
real Slurm on this machine. The worker prints time.process_time(), in which exec changes nothing:
it is the CPU time, of user and system, of the process that srun has started. The goal is at most
40 ms more.
"""

import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from statistics import median

from benchmarks import report
from benchmarks.report import Goal, Section, cell
from tests.cluster.slurm import Slurm, require_slurm, start

TASKS = 32
ROUNDS = 9
GOAL_MS = 40.0
STEP = ["srun", "-N4", f"-n{TASKS}", "--overcommit"]
WORKER = "import time; spent = time.process_time(); print(f'{1e3 * spent:.3f}', flush=True)\n"


def cpu_ms(slurm: Slurm, command: list[str]) -> list[float]:
    """Milliseconds of CPU time of every rank."""
    done = slurm.run([*STEP, *command], env={"SLURM_KILL_BAD_EXIT": "1"})
    spent = [float(line) for line in done.stdout.split()]
    if done.returncode != 0 or len(spent) != TASKS:
        raise RuntimeError(f"{done.returncode}: {done.stdout}{done.stderr}")
    return spent


def measure(options: Namespace) -> Section:
    """Both in turn, in a cluster of the tests."""
    require_slurm()
    cluster = start()
    with tempfile.TemporaryDirectory() as folder:
        worker = Path(folder, "worker.py")
        worker.write_text(WORKER)
        alone = [sys.executable, str(worker)]
        launched = [sys.executable, "-m", "spawnlaunch", str(worker)]
        try:
            cpu_ms(cluster, launched)  # warms the caches, and compiles
            pairs = [
                (median(cpu_ms(cluster, alone)), median(cpu_ms(cluster, launched)))
                for _ in range(options.rounds)
            ]
        finally:
            cluster.stop()
    first, second = (list(column) for column in zip(*pairs, strict=True))
    return Section(
        "task_mode",
        "One task per rank, under Slurm",
        f"""CPU time of each rank up to the worker's first line, in ms, of {TASKS} tasks on four
        nodes of a Slurm on this machine; the median rank, {options.rounds} rounds.""",
        ["command", "CPU time of a rank, ms"],
        [
            [f"srun -n {TASKS} python worker.py", cell(first)],
            [f"srun -n {TASKS} python -m spawnlaunch worker.py", cell(second)],
        ],
        [Goal("Difference in ms", median(second) - median(first), GOAL_MS)],
    )


if __name__ == "__main__":
    report.main("task_mode", __doc__, measure, ROUNDS)

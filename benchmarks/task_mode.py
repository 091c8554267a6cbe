"""The cost of the launcher for each rank in task mode: CPU time, and look-ups in file systems.

    python -m benchmarks.task_mode [--rounds 9] [--write]

`srun -n 32 python -m spawnlaunch worker.py` against `srun -n 32 python worker.py`, in turn, in a
real Slurm on this machine. Bare Python is shown twice, so that it hides no cost: the one of the
environment, and `python -I -S` of the installation below, which reads no site-packages.

CPU time is the worker's time.process_time(), which exec does not change: it is that of the process
that srun has started, of user and system, the launcher's own start included. The goal is at most 40
ms more than bare Python.

Look-ups are stat(2) and open(2) up to the exec of the worker, as strace(1) sees them in one task of
four; each is a question to the file system that a cluster shares, times all ranks. The goal is at
most 350 more than those of bare Python's start.
"""

import os
import sys
import tempfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks import report
from benchmarks.report import Goal, Section, cell, goal_of_difference
from benchmarks.turns import turns
from tests.cluster.slurm import Slurm, require_slurm, start
from tests.counts.lookups import calls_in, lookups, strace

TASKS = 32
ROUNDS = 9
GOAL_MS = 40.0
GOAL_LOOKUPS = 350.0
STEP = ["srun", "-N4", f"-n{TASKS}", "--overcommit"]
FEW = ["srun", "-N2", "-n4", "--overcommit"]
WORKER = "import time; spent = time.process_time(); print(f'{1e3 * spent:.3f}', flush=True)\n"
BASE = str(Path(sys.base_prefix, "bin", os.path.basename(os.path.realpath(sys.executable))))

# Named by the words before the script.
LAUNCHED, BARE, BARER = "python -m spawnlaunch", "python", "python -I -S of the installation"
COMMANDS = {
    LAUNCHED: [sys.executable, "-m", "spawnlaunch"],
    BARE: [sys.executable],
    BARER: [BASE, "-I", "-S"],
}


def cpu_ms(slurm: Slurm, command: Sequence[str]) -> list[float]:
    """The milliseconds of CPU time of every rank."""
    done = slurm.run([*STEP, *command], env={"SLURM_KILL_BAD_EXIT": "1"})
    spent = [float(line) for line in done.stdout.split()]
    if done.returncode != 0 or len(spent) != TASKS:
        raise RuntimeError(f"{done.returncode}: {done.stdout}{done.stderr}")
    return spent


def looked_up(slurm: Slurm, command: Sequence[str], folder: str) -> int:
    """The look-ups of rank 1 in a step of four tasks: the launcher's, or all of bare Python."""
    traces = f"{folder}/trace.$SLURM_PROCID"
    traced = f'exec {" ".join(strace("TRACES"))} "$@"'.replace("TRACES", traces)
    done = slurm.run([*FEW, "sh", "-c", traced, "sh", *command])
    if done.returncode != 0:
        raise RuntimeError(f"{done.returncode}: {done.stdout}{done.stderr}")
    return lookups(list(calls_in(Path(folder, "trace.1").read_text())))


def measure(options: Namespace) -> Section:
    """Measure all commands in turn, in a cluster of the tests."""
    require_slurm()
    cluster = start()
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        worker, nothing = Path(folder, "worker.py"), Path(folder, "nothing.py")
        worker.write_text(WORKER)
        nothing.write_text("")
        try:
            cpu_ms(cluster, [*COMMANDS[LAUNCHED], str(worker)])  # warms the caches, and compiles
            counts = {
                name: looked_up(cluster, [*command, str(nothing)], folder)
                for name, command in COMMANDS.items()
            }
            for name in turns(options.rounds, list(COMMANDS)):
                times[name].append(median(cpu_ms(cluster, [*COMMANDS[name], str(worker)])))
        finally:
            cluster.stop()
    return section(options.rounds, times, counts)


def section(
    rounds: int, times: Mapping[str, Sequence[float]], counts: Mapping[str, int]
) -> Section:
    """The section with its table and goals."""
    return Section(
        "task_mode",
        "One task per rank, under Slurm",
        f"""CPU time of each rank up to the worker's first line, in ms, of {TASKS} tasks on four
        nodes of a Slurm on this machine; the median rank, {rounds} rounds. stat and open of one
        rank up to the worker's exec.""",
        ["srun ...", "CPU time of a rank, ms", "stat and open", "beyond bare Python"],
        [
            [
                f"{name} worker.py",
                cell(times[name]),
                f"{counts[name]}",
                f"{counts[name] - counts[BARE]:+d}",
            ]
            for name in COMMANDS
        ],
        [
            goal_of_difference(
                "CPU time beyond bare Python, ms", times[LAUNCHED], times[BARE], GOAL_MS
            ),
            Goal(
                "stat and open beyond bare Python",
                counts[LAUNCHED] - counts[BARE],
                GOAL_LOOKUPS,
            ),
        ],
    )


if __name__ == "__main__":
    report.main("task_mode", __doc__, measure, ROUNDS)

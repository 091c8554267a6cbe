"""From starting a launcher to the end of the first all-reduce: how long until a job does its work.

    python -m benchmarks.first_all_reduce [--rounds 7] [--workers 8] [--write]

Workers import torch, join over gloo and sum up one number. The import takes most of the time, so
the number of imports decides: `--preload torch` makes one for all workers.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from benchmarks import report
from benchmarks.launchers import Launcher, launchers, preloading
from benchmarks.processes import seconds_to
from benchmarks.report import Section, cell, goal, share
from benchmarks.turns import turns

ROUNDS = 7
WORKERS = 8
WORKER = Path(__file__).with_name("reducing_worker.py")
PRELOADING, PLAIN, TORCHRUN = "spawnlaunch --preload torch", "spawnlaunch", "torchrun"
PEERS = (PLAIN, "shell loop", TORCHRUN)  # mpirun sets no variables for env://
GOALS = {TORCHRUN: 1 / 4, PLAIN: 1 / 3}  # the most that the preload may take of their time


def measure(options: Namespace) -> Section:
    """Measure spawnlaunch with and without the preload, and other launchers that torch can use."""
    rivals = [Launcher(PRELOADING, preloading)]
    rivals += [launcher for launcher in launchers() if launcher.name in PEERS]
    n = options.workers
    times: dict[str, list[float]] = {launcher.name: [] for launcher in rivals}
    for launcher in turns(options.rounds, rivals):
        times[launcher.name].append(seconds_to(launcher.command(n, WORKER), {}, n, "reduced"))
    base = times[PRELOADING]
    return Section(
        "first_all_reduce",
        "The first all-reduce",
        f"""From starting the launcher to the end of the first all-reduce on the last of {n}
        workers, in s; {options.rounds} rounds.""",
        ["launcher", f"first all-reduce of {n}, s", f"{PRELOADING} as a share of it"],
        [[name, cell(took), f"{share(base, took).ratio:.3f}"] for name, took in times.items()],
        [
            goal(f"With the preload, of the time of {name}", base, times[name], most)
            for name, most in GOALS.items()
        ],
    )


def flags(parser: ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, default=WORKERS, metavar="N", help="default 8")


if __name__ == "__main__":
    report.main("first_all_reduce", __doc__, measure, ROUNDS, flags)

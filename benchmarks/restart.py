"""How long a job that has lost a worker stands still until all of them work again.

    python -m benchmarks.restart [--rounds 7] [--workers 4] [--write]

One of the workers dies after the first all-reduce; the launcher ends the others and starts all
anew. Measured is from that death to the end of the next all-reduce on the last worker. With
`--preload torch` torch is there already when they start anew.
"""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from benchmarks import report
from benchmarks.processes import finish, lines, start
from benchmarks.report import Section, cell, goal
from benchmarks.turns import turns

ROUNDS = 7
WORKERS = 4
WORKER = Path(__file__).with_name("reducing_worker.py")
OF_TORCHRUN = 1 / 3

SPAWNLAUNCH = [sys.executable, "-m", "spawnlaunch", "--max-restarts", "1", "--nproc"]
RIVALS = {
    "spawnlaunch --preload torch": [*SPAWNLAUNCH[:3], "--preload", "torch", *SPAWNLAUNCH[3:]],
    "spawnlaunch": SPAWNLAUNCH,
    "torchrun --standalone": [
        *[sys.executable, "-m", "torch.distributed.run", "--standalone"],
        *["--max-restarts", "1", "--nproc-per-node"],
    ],
}
# Otherwise torchrun 2.13 keeps one store for all attempts, where gloo finds the addresses of the
# attempt before: then the restarted workers all fail.
ENVIRON = {"FAIL_ONCE": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def standstill_s(command: list[str], n: int) -> float:
    """Seconds from the death to the last worker's second all-reduce."""
    process = start([*command, str(n), str(WORKER)], ENVIRON)
    try:
        printed = [line.split() for line in lines(process, n, "reduced 1")]
        died = next(float(words[1]) for words in printed if words[0] == "dies")
        return max(float(words[2]) for words in printed if words[:2] == ["reduced", "1"]) - died
    finally:
        finish(process)


def measure(options: Namespace) -> Section:
    """Measure spawnlaunch with and without the preload, and torchrun."""
    times: dict[str, list[float]] = {name: [] for name in RIVALS}
    for name in turns(options.rounds, list(RIVALS)):
        times[name].append(standstill_s(RIVALS[name], options.workers))
    preloaded_s, _, torchrun_s = times.values()
    return Section(
        "restart",
        "A restart after a failure",
        f"""From the death of one of {options.workers} workers to the next all-reduce of all of
        them, in s; {options.rounds} rounds.""",
        ["launcher", "standstill, s"],
        [[f"{name} --max-restarts 1", cell(took)] for name, took in times.items()],
        [goal("With the preload, of torchrun's time", preloaded_s, torchrun_s, OF_TORCHRUN)],
    )


def flags(parser: ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, default=WORKERS, metavar="N", help="default 4")


if __name__ == "__main__":
    report.main("restart", __doc__, measure, ROUNDS, flags)

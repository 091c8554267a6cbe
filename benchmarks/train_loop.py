"""Tokens per second of the training loop, of a hand-written one, and of the Hugging Face Trainer.

    python -m benchmarks.train_loop [ROUNDS [LAYERS WIDTH CONTEXT]]

Two ranks on two CPUs, the same model on the same text. The three run at the same time, each in its
own two processes, but take turns: in every round each trains for TURN steps while the others sleep,
in another order each time. So what else the machine does, and how fast it is just then, hits all
of them, and a ratio is taken within a round. Each has its first turn before the first round.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.train_arms import ARMS, BATCH, RANKS, TURN

ROUNDS = 12
SHAPE = (5, 128, 128)  # layers, width and context of the bundled model
PARTS = ("data_s", "compute_s", "wait_s")


class Arm(NamedTuple):
    """One of the three: its processes, and the directory that rank 0 writes to."""

    name: str
    scratch: Path
    ranks: list[Any]

    def turn(self) -> tuple[float, float]:
        """Let it train for a turn; its seconds, and those of processors that both ranks used."""
        for rank in self.ranks:
            rank.stdin.write("go\n")
            rank.stdin.flush()
        told = [[float(word) for word in rank.stdout.readline().split()] for rank in self.ranks]
        return max(seconds for seconds, _ in told), sum(busy for _, busy in told)


def start(name: str, scratch: Path, rounds: int, shape: tuple[int, ...]) -> Arm:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    there = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    words = [sys.executable, "-m", "benchmarks.train_arms", name, str(scratch), *map(str, shape)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    ranks = []
    for rank in range(RANKS):
        who = {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"}
        ranks.append(subprocess.Popen([*words, str(rounds)], env=os.environ | there | who, **pipes))
    return Arm(name, scratch, ranks)


def measure(rounds: int, shape: tuple[int, ...]) -> None:
    tokens = TURN * BATCH * RANKS * shape[2]
    speeds: dict[str, list[float]] = {name: [] for name in ARMS}
    busy: dict[str, list[float]] = {name: [] for name in ARMS}
    with ExitStack() as stack:
        arms = []
        for name in ARMS:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            arms.append(start(name, scratch, rounds, shape))
            for rank in arms[-1].ranks:
                stack.callback(rank.wait)
                stack.callback(rank.kill)
            arms[-1].turn()
        for number in range(rounds):
            for i in range(len(arms)):
                arm = arms[(number + i) % len(arms)]
                seconds, busy_s = arm.turn()
                speeds[arm.name].append(tokens / seconds)
                busy[arm.name].append(busy_s)
            told = (f"{name} {speed[-1]:,.0f} tokens/s" for name, speed in speeds.items())
            print("  ".join(told), flush=True)
        splits = (arms[0].scratch / "metrics.jsonl").read_text().splitlines()[1:]
    summarise(speeds, busy)
    show_split([json.loads(line) for line in splits])


def summarise(speeds: dict[str, list[float]], busy: dict[str, list[float]]) -> None:
    """Medians over the rounds; of the ratios, which are within a round, the quartiles too."""
    for name, speed in speeds.items():
        cpu_ms = 1e3 * statistics.median(busy[name]) / TURN / RANKS
        told = f"{name:8} {statistics.median(speed):8,.0f} tokens/s  {cpu_ms:7.2f} CPU ms per step"
        if name != "ours":
            ratios = [mine / its for mine, its in zip(speeds["ours"], speed, strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            told += f"  ours is {middle:.3f} of it ({low:.3f} to {high:.3f} in half of the rounds)"
        print(told)


def show_split(lines: list[dict[str, Any]]) -> None:
    """Where a step of ours goes: the medians of the lines of metrics."""
    for part in PARTS:
        low, middle, high = (
            1e3 * statistics.median(line[part][i] for line in lines) for i in range(3)
        )
        print(f"{part[:-2]:8} {middle:8.2f} ms per step   {low:.2f} to {high:.2f} over the ranks")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    measure(rounds, tuple(map(int, sys.argv[2:5])) or SHAPE)


if __name__ == "__main__":
    main()

"""Tokens per second of the training loop, of a hand-written one, and of the Hugging Face Trainer.

    python -m benchmarks.train_loop [--rounds 12] [--shape LAYERS,WIDTH,CONTEXT] [--write]

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
from argparse import ArgumentParser, Namespace
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import report
from benchmarks.report import Section, cell
from benchmarks.train_arms import ARMS, BATCH, RANKS, TURN

ROUNDS = 12
SHAPE = "5,128,128"  # layers, width and context of the bundled model
NAMES = {"ours": "train", "bare": "written by hand", "trainer": "Trainer of transformers"}
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


def measure(options: Namespace) -> Section:
    """Start all, let them take turns, and sum up."""
    rounds, shape = options.rounds, tuple(map(int, options.shape.split(",")))
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
            print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        splits = (arms[0].scratch / "metrics.jsonl").read_text().splitlines()[1:]
    split = [json.loads(line) for line in splits]
    return section(options.shape, speeds, busy, split)


def section(
    shape: str,
    speeds: dict[str, list[float]],
    busy: dict[str, list[float]],
    split: list[dict[str, Any]],
) -> Section:
    """Medians over the rounds; of the ratios, which are within a round, the quartiles too."""
    parts = ", ".join(
        f"{part[:-2]} {1e3 * statistics.median(line[part][1] for line in split):.2f}"
        for part in PARTS
    )
    rounds = len(speeds["ours"])
    return Section(
        "train_loop",
        "The training loop",
        f"""The same model (layers, width, context: {shape}) on the same text, {RANKS} ranks on
        {RANKS} CPUs, {rounds} rounds of {TURN} steps. A step of ours in ms: {parts}. Behind
        a share stands where half of the rounds' shares lie.""",
        ["loop", "tokens per second", "CPU ms per rank and step", "ours as a share of it"],
        [
            [
                NAMES[name],
                cell(speed),
                cell([1e3 * busy_s / TURN / RANKS for busy_s in busy[name]]),
                share(speeds["ours"], speed),
            ]
            for name, speed in speeds.items()
        ],
    )


def share(ours: list[float], theirs: list[float]) -> str:
    """Median and quartiles of the ratios; a single round has no quartiles."""
    ratios = [mine / its for mine, its in zip(ours, theirs, strict=True)]
    if len(ratios) < 2:
        return f"{ratios[0]:.3f}"
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def flags(parser: ArgumentParser) -> None:
    parser.add_argument("--shape", default=SHAPE, metavar="L,W,C", help="default %(default)s")


if __name__ == "__main__":
    report.main("train_loop", __doc__, measure, ROUNDS, flags)

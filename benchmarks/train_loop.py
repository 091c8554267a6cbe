"""Tokens per second of the training loop, of a hand-written one, and of the Hugging Face Trainer.

    python -m benchmarks.train_loop [--rounds 100] [--shapes LAYERS,WIDTH,CONTEXT ...] [--write]

Two ranks on two CPUs, the same model on the same text. They run at the same time, each in its
own two processes, but take turns: in every round each trains for TURN steps while the others sleep,
in another order each time. So other work of the machine, and its speed at the time, affect all of
them, and a ratio is taken within a round. Turns are short and many, for a machine is slow for
seconds at a time. Each has FIRST_TURNS before the first round.

The cost of a loop is a time per step, so it shows on a model with short steps: the first shape is
one. The second is the bundled model with its defaults. The Trainer has two rows: by default it
searches for unused parameters in every step; the other has that and the like switched off.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import report
from benchmarks.report import Goal, Section, cell
from benchmarks.train_arms import ARMS, BATCH, FIRST_TURNS, RANKS, SPLIT, TURN
from benchmarks.turns import turns
from spawnlaunch.bench import stats
from spawnlaunch.bench.stats import Comparison
from tests.support.ports import free_port

ROUNDS = 100
SHAPES = ("3,64,64", "5,128,128")  # layers, width and context of the bundled model
NAMES = {
    "ours": "train",
    "bare": "written by hand",
    "trainer": "Trainer of transformers",
    "quick_trainer": "Trainer at its quickest",
}
PARTS = ("data", "compute", "wait")
# The least for the lower end of the interval, by shape.
OF_BARE, OF_TRAINER = (0.97, 0.97), (1.03, 0.99)


class Arm(NamedTuple):
    """An arm: its processes, and the directory that rank 0 writes to."""

    name: str
    scratch: Path
    ranks: list[Any]

    def turn(self) -> tuple[float, float]:
        """Let the arm train for a turn; return its seconds, and the CPU seconds of both ranks."""
        for rank in self.ranks:
            rank.stdin.write("go\n")
            rank.stdin.flush()
        told = [[float(word) for word in rank.stdout.readline().split()] for rank in self.ranks]
        return max(seconds for seconds, _ in told), sum(busy for _, busy in told)


def start(name: str, scratch: Path, rounds: int, shape: tuple[int, ...]) -> Arm:
    port = str(free_port())
    there = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    words = [sys.executable, "-m", "benchmarks.train_arms", name, str(scratch), *map(str, shape)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    ranks = []
    for rank in range(RANKS):
        who = {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"}
        ranks.append(subprocess.Popen([*words, str(rounds)], env=os.environ | there | who, **pipes))
    return Arm(name, scratch, ranks)


class Measured(NamedTuple):
    """A shape, with the results of all arms in each round."""

    shape: str
    speeds: dict[str, list[float]]  # tokens per second
    busy_ms: dict[str, list[float]]  # of a processor, per rank and step
    split: dict[str, float]  # seconds of each part of a step of ours

    def share_of(self, name: str, of: str = "ours") -> Comparison:
        """The speed of arm `of` as a ratio to that of arm `name`, within the rounds."""
        return stats.compared(stats.pair(self.speeds[of], self.speeds[name], True), report.LEVEL)


def measure(options: Namespace) -> Section:
    """Measure one shape after the other."""
    return section([measure_one(shape, options.rounds) for shape in options.shapes])


def measure_one(text: str, rounds: int) -> Measured:
    """Measure a shape: start all arms, and let them take turns."""
    shape = tuple(map(int, text.split(",")))
    tokens = TURN * BATCH * RANKS * shape[2]
    speeds: dict[str, list[float]] = {name: [] for name in ARMS}
    busy_ms: dict[str, list[float]] = {name: [] for name in ARMS}
    with ExitStack() as stack:
        arms = []
        for name in ARMS:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            arms.append(start(name, scratch, rounds, shape))
            for rank in arms[-1].ranks:
                stack.callback(rank.wait)
                stack.callback(rank.kill)
            for _ in range(FIRST_TURNS):
                arms[-1].turn()
        for arm in turns(rounds, arms):
            seconds, busy_s = arm.turn()
            speeds[arm.name].append(tokens / seconds)
            busy_ms[arm.name].append(1e3 * busy_s / TURN / RANKS)
        return Measured(text, speeds, busy_ms, read_split(arms[0].scratch))


def read_split(scratch: Path) -> dict[str, float]:
    """The median seconds of each part of a step, over the ranks and all but the first turns."""
    files = [scratch / f"{SPLIT}{rank}" for rank in range(RANKS)]
    told = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    counted = [line for lines in told for line in lines[1:] or lines]
    return {part: statistics.median(line[part] for line in counted) for part in PARTS}


def section(shapes: list[Measured]) -> Section:
    """The section: medians over the rounds, and ratios within a round with their intervals."""
    splits = "; ".join(
        f"{one.shape}: "
        + ", ".join(f"{part} {1e3 * seconds:.2f}" for part, seconds in one.split.items())
        for one in shapes
    )
    goals = (("bare", OF_BARE), ("quick_trainer", OF_TRAINER))
    return Section(
        "train_loop",
        "The training loop",
        f"""The same model (layers, width, context) on the same text, {RANKS} ranks on {RANKS} CPUs,
        {len(shapes[0].speeds["ours"])} rounds of {TURN} steps. A share is that of the time of all
        rounds, with its interval. What a loop costs shows where steps are short, as in the first
        shape. By default the Trainer searches for unused parameters in every step. A step of ours
        in ms, {splits}.""",
        ["model", "loop", "tokens per second", "CPU ms per rank and step", "ours as a share of it"],
        [
            [
                one.shape,
                NAMES[name],
                cell(speed),
                cell(one.busy_ms[name]),
                shown(one.share_of(name)),
            ]
            for one in shapes
            for name, speed in one.speeds.items()
        ],
        [
            Goal(
                f"Of {NAMES[name]}, {one.shape}",
                (found := one.share_of(name)).ratio,
                limit,
                at_least=True,
                interval=(found.low, found.high),
            )
            for name, limits in goals
            for one, limit in zip(shapes, limits, strict=False)
        ],
    )


def shown(found: Comparison) -> str:
    """A ratio with its interval."""
    return f"{found.ratio:.3f} ({found.low:.3f} to {found.high:.3f})"


def flags(parser: ArgumentParser) -> None:
    shown_default = " ".join(SHAPES)
    parser.add_argument(
        "--shapes", nargs="+", default=SHAPES, metavar="L,W,C", help=f"default {shown_default}"
    )


if __name__ == "__main__":
    report.main("train_loop", __doc__, measure, ROUNDS, flags)

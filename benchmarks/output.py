"""The output of workers through the launcher: its speed, and whether every line arrives whole.

    python -m benchmarks.output [--rounds 7] [--lines 300000] [--write]

Four workers write lines of 83 bytes as fast as they can, 1.2 million in all, and the launcher puts
each worker's name in front of them: into a file, and into a pipe whose reader does nothing but
read. Every line of spawnlaunch is then checked: whole, and in its worker's order. The time is from
the start of the launcher to its end, with all its output read.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from itertools import product
from pathlib import Path
from typing import IO

from benchmarks import report
from benchmarks.report import Section, cell, goal
from benchmarks.turns import turns

ROUNDS = 7
WORKERS = 4
LINES = 300_000  # of each worker
CHARS = 82  # of a line, and its end
WORKER = Path(__file__).with_name("talking_worker.py")
OF_TORCHRUN = 0.6
READ_BYTES = 1 << 20

LINE = re.compile(rb"(\S+ ?)(worker (\d+) line (\d+) \.+)")
SPAWNLAUNCH, SPAWNLAUNCH_TEE, TORCHRUN = "spawnlaunch", "spawnlaunch --tee 3", "torchrun --tee 3"
RIVALS = (SPAWNLAUNCH, SPAWNLAUNCH_TEE, TORCHRUN)
TARGETS = ("file", "pipe")


def command(name: str, lines: int, folder: str) -> list[str]:
    """The command of a launcher; torchrun prints prefixes only if it also keeps files."""
    worker = [str(WORKER), str(lines)]
    spawnlaunch = [sys.executable, "-m", "spawnlaunch", "--nproc", str(WORKERS)]
    if name == SPAWNLAUNCH:
        return [*spawnlaunch, *worker]
    if name == SPAWNLAUNCH_TEE:
        return [*spawnlaunch, "--tee", "3", "--log-dir", folder, *worker]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(WORKERS)]
    return [*torchrun, "--tee", "3", "--log-dir", folder, *worker]


def seconds(name: str, target: str, lines: int) -> float:
    """The seconds of one launch, the output of which is then checked."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as file:
        began = time.monotonic()
        output = _run(command(name, lines, folder), target, file)
        took_s = time.monotonic() - began
        if target == "file":
            file.seek(0)
            output = file.read()
    if name != TORCHRUN:  # it sometimes joins lines of several workers
        check(output, lines)
    return took_s


def _run(words: list[str], target: str, file: IO[bytes]) -> bytes:
    """Run a command to its end; return its output if that is a pipe."""
    stdout = file if target == "file" else subprocess.PIPE
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.DEVNULL
    )
    chunks: list[bytes] = []
    if process.stdout:
        while chunk := os.read(process.stdout.fileno(), READ_BYTES):
            chunks.append(chunk)
        process.stdout.close()
    if process.wait() != 0:
        raise RuntimeError(f"{words} ended with {process.returncode}")
    return b"".join(chunks)


def check(output: bytes, lines: int) -> None:
    """Raises ValueError unless every worker's lines are whole, prefixed and in order."""
    next_numbers = dict.fromkeys(range(WORKERS), 0)
    for line in output.splitlines():
        match = LINE.fullmatch(line)
        if match is None or len(match[2]) != CHARS:
            raise ValueError(f"a line is not whole: {line!r}")
        worker, number = int(match[3]), int(match[4])
        if number != next_numbers[worker]:
            raise ValueError(f"worker {worker}: line {number} where {next_numbers[worker]} was due")
        next_numbers[worker] += 1
    if set(next_numbers.values()) != {lines}:
        raise ValueError(f"lines are missing: {next_numbers}")


def measure(options: Namespace) -> Section:
    """Measure both launchers, into a file and into a pipe."""
    cases = list(product(RIVALS, TARGETS))
    times: dict[tuple[str, str], list[float]] = {case: [] for case in cases}
    for case in turns(options.rounds, cases):
        times[case].append(seconds(*case, options.lines))
    total = options.lines * WORKERS
    return Section(
        "output",
        "What the workers say",
        f"""{total:,} lines of {CHARS + 1} bytes from {WORKERS} workers, with prefixes, in s;
        {options.rounds} rounds; with --tee 3 they are kept in files too. Of spawnlaunch
        each line was found whole and in its worker's order; torchrun joins some.""",
        ["launcher", *(f"into a {target}, s" for target in TARGETS)],
        [[name, *(cell(times[name, target]) for target in TARGETS)] for name in RIVALS],
        [
            goal(
                f"Into a {target}, with files on both sides, of torchrun's time",
                times[SPAWNLAUNCH_TEE, target],
                times[TORCHRUN, target],
                OF_TORCHRUN,
            )
            for target in TARGETS
        ],
    )


def flags(parser: ArgumentParser) -> None:
    parser.add_argument("--lines", type=int, default=LINES, metavar="N", help="of each worker")


if __name__ == "__main__":
    report.main("output", __doc__, measure, ROUNDS, flags)

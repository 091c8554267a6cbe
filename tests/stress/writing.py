"""Workers that write without pause, killed at random before readers of all kinds.

    python -m tests.stress.writing [--rounds N] [--seed S] [--only I]

Whatever happens, every line that a worker has written comes whole and in its order, or its bytes
are among those that the launcher reports as dropped; only a launcher that is killed with SIGKILL
may take some with it.
"""

import argparse
import os
import random
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.support.launching import WORKERS, start

GRACE_S = 1.0
ENOUGH_S = 40.0
LINE = re.compile(rb"\[(\d+)\] (\d+) (x*) end")
DROPPED = re.compile(r"nobody read our stdout: dropped the last (\d+) bytes")


class Round(NamedTuple):
    """What is drawn."""

    nproc: int
    lines: int
    reader: str  # "fast", "slow", "late" (begins when the victim is struck) or "never"
    victim: str  # "nobody", "worker" or "launcher"
    signum: signal.Signals
    failing: bool  # the last rank ends with status 3 by itself
    delay_s: float

    def __str__(self) -> str:
        struck = f"{self.signum.name} to {self.victim} after {self.delay_s:.2f} s"
        what = "nobody is struck" if self.victim == "nobody" else struck
        fails = ", one fails" if self.failing else ""
        return f"{self.nproc} workers, {self.lines} lines, {self.reader} reader, {what}{fails}"

    @property
    def may_lose(self) -> bool:
        """Whether the launcher has no chance to write what it has read."""
        return self.victim == "launcher" and self.signum == signal.SIGKILL


def draw(rng: random.Random) -> Round:
    reader = rng.choice(("fast", "slow", "late", "never"))
    # Workers whose output nobody reads wait for a reader, until somebody ends the job.
    victims = ("worker", "launcher") if reader == "never" else ("nobody", "worker", "launcher")
    return Round(
        nproc=rng.randint(2, 4),
        lines=rng.choice((300, 3000, 20000)),
        reader=reader,
        victim=rng.choice(victims),
        signum=rng.choice((signal.SIGTERM, signal.SIGKILL, signal.SIGINT)),
        failing=rng.random() < 0.3,
        delay_s=rng.uniform(0.1, 0.6),
    )


def play(drawn: Round, directory: Path) -> str:
    """Play a round with real processes; the result says what was wrong, "" for nothing."""
    flags = ["--quiet", "--nproc", str(drawn.nproc), "--grace", str(GRACE_S)]
    words = [str(directory), str(drawn.lines), *([f"{drawn.nproc - 1}:3"] if drawn.failing else [])]
    with (directory / "stderr").open("wb") as stderr:
        launcher = start(
            sys.executable,
            "-m",
            "spawnlaunch",
            *flags,
            WORKERS / "counting.py",
            *words,
            stderr=stderr,
            text=False,
        )
    try:
        output = b"".join(_read(drawn, launcher))
    finally:
        launcher.kill()
        launcher.wait()
    return check(drawn, output, (directory / "stderr").read_text(), written(drawn, directory))


def _read(drawn: Round, launcher: "subprocess.Popen[bytes]") -> Iterator[bytes]:
    """What the reader gets, who meanwhile strikes the victim."""
    assert launcher.stdout
    fd, began, struck = launcher.stdout.fileno(), time.monotonic(), drawn.victim == "nobody"
    while (passed := time.monotonic() - began) < ENOUGH_S:
        if not struck and passed > drawn.delay_s:
            struck = _strike(drawn, launcher)
        reads = drawn.reader != "never" and (drawn.reader != "late" or passed > drawn.delay_s)
        if not reads:
            time.sleep(0.01)
            if launcher.poll() is not None:
                reads = True  # what is left in the pipe
        if reads and select.select([fd], [], [], 0.01)[0]:
            chunk = os.read(fd, 1 << 16 if drawn.reader != "slow" else 1 << 12)
            if not chunk:
                return
            yield chunk
            if drawn.reader == "slow":
                time.sleep(0.0005)
    raise AssertionError(f"the launch had not ended after {ENOUGH_S:g} s")


def _strike(drawn: Round, launcher: "subprocess.Popen[bytes]") -> bool:
    """Send the signal; False where its victim has not been started yet."""
    pid = launcher.pid
    if drawn.victim == "worker":
        for _ in range(2):  # the guard, and one of its children
            children = Path(f"/proc/{pid}/task/{pid}/children")
            pids = children.read_text().split() if children.exists() else []
            if not pids:
                return launcher.poll() is not None  # else it has not come that far
            pid = int(pids[-1])
    with suppress(ProcessLookupError):
        os.kill(pid, drawn.signum)
    return True


def written(drawn: Round, directory: Path) -> list[int]:
    """How many whole lines each rank had written when it ended."""
    counts = []
    for rank in range(drawn.nproc):
        path = directory / str(rank)
        data = path.read_bytes() if path.exists() else b""
        counts.append(struct.unpack("Q", data)[0] if len(data) == 8 else 0)
    return counts


def check(drawn: Round, output: bytes, stderr: str, counts: list[int]) -> str:
    """What is wrong with what the reader got."""
    lines = output.split(b"\n")
    torn = lines.pop()  # nothing, where the last line has its newline
    if torn and not drawn.may_lose and not DROPPED.search(stderr):
        return f"the output ends within a line: {torn!r}"
    seen = [0] * drawn.nproc
    broken: set[int] = set()  # ranks whose last line was cut short by their death
    for line in lines:
        found = LINE.fullmatch(line)
        rank = int(line[1 : line.index(b"]")]) if line[:1] == b"[" and b"]" in line else -1
        if rank not in range(drawn.nproc) or rank in broken:
            return f"a line that nobody wrote: {line!r}"
        if not found:
            broken.add(rank)
        elif int(found[2]) != seen[rank] or len(found[3]) != seen[rank] * 7 % 200:
            return f"rank {rank} wrote line {seen[rank]} next, and {line!r} came"
        else:
            seen[rank] += 1
    if broken and drawn.victim == "nobody" and not drawn.failing:
        return f"lines of ranks {sorted(broken)} were cut short, and nobody was killed"
    if drawn.may_lose or DROPPED.search(stderr):
        return "" if drawn.reader in ("never", "late", "slow") or drawn.may_lose else stderr
    # A worker may have died between writing a line and counting it.
    lost = [rank for rank, n in enumerate(counts) if not n <= seen[rank] <= n + 1]
    return f"ranks {lost} wrote {counts} lines, and {seen} came\n{stderr}" if lost else ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stress.writing", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", type=int, default=None, help="play this round alone")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    numbers = range(options.rounds) if options.only is None else [options.only]
    print(f"seed {seed}, {len(numbers)} rounds", flush=True)
    failures, readers = 0, Counter[str]()
    for number in numbers:
        drawn = draw(random.Random(f"{seed}:{number}"))
        readers[drawn.reader] += 1
        with tempfile.TemporaryDirectory(prefix="stress-") as directory:
            try:
                fault = play(drawn, Path(directory))
            except AssertionError as error:
                fault = str(error)
        if fault:
            failures += 1
            print(f"round {number}: {drawn}\n  {fault}", flush=True)
            print(f"  again: python -m tests.stress.writing --seed {seed} --only {number}")
    kinds = ", ".join(f"{n} {reader}" for reader, n in sorted(readers.items()))
    print(f"seed {seed}: {len(numbers)} rounds (readers: {kinds}), {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

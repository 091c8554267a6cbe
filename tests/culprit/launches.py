"""Launches of the scripts of several libraries, with a fault or none: who is named, at which line?

Each seed is a launch with --record: a library, a number of ranks, a fault (or none) and whose. It
runs until the record names somebody, or for the patience of a healthy run.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
CLIENTS = {
    "ddp": "DistributedDataParallel by hand",
    "fsdp": "`fully_shard` by hand",
    "trainer": "Hugging Face Trainer",
    "lightning": "Lightning",
    "bundled": "the bundled loop",
    "loaders": "DDP, two forked loader processes for each rank",
    "compile": "DDP of `torch.compile`",
    "thread": "DDP in a thread",
    "pair": "DDP, with another process of the same rank that imports torch",
}
NEEDS = {"trainer": "transformers", "lightning": "lightning"}  # a library
FAULTS = ("none", "data", "compute", "sleep", "lock", "leak", "stop", "hang", "mismatch", "two",
          "node")  # fmt: skip
KINDS = {"leak": "grows", "stop": "stopped", "mismatch": "mismatch"}  # of note; else "waited for"
BUNDLED = ("--device", "cpu", "--steps", "1000000", "--loader-workers", "0", "--batch-size", "16",
           "--lr", "1e-6")  # fmt: skip
LINES = {"two": "data", "node": "data"}  # as what these happen
# From the first look at the collectives on; so many looks at a healthy one, of which two name.
HEALTHY_S, HEALTHY_LOOKS, PATIENCE_S = 15.0, 4, 90.0
MOST_S = 300.0  # of a launch


class Case(NamedTuple):
    seed: int
    client: str
    fault: str
    size: int
    ranks: tuple[int, ...]
    delay_s: float

    def __str__(self) -> str:
        who = ",".join(map(str, self.ranks))
        return f"{self.seed:4} {self.client:10} {self.fault:8} of {self.size}: {who or '-':8}"


class Outcome(NamedTuple):
    named: dict[int, str]  # what is said of each rank, by the kind of note that is expected
    others: list[str]  # what else was noted of waiting
    seconds: float
    said: str


def case(seed: int) -> Case:
    """The launch of a seed."""
    draw = random.Random(seed)
    client = draw.choice([*CLIENTS])
    fault = draw.choice(FAULTS)
    size = draw.randint(2, 8)
    size = max(size, {"two": 5, "node": 4}.get(fault, 2))
    size -= size % 2 if fault == "node" else 0
    ranks: tuple[int, ...] = (draw.randrange(size),)
    if fault == "two":
        ranks = tuple(sorted(draw.sample(range(size), 2)))
    elif fault == "node":
        ranks = tuple(range(size // 2, size))
    elif fault == "none":
        ranks = ()
    delay_s = size * draw.uniform(0.04, 0.12)
    return Case(seed, client, fault, size, ranks, delay_s)


def line_of(one: Case) -> str:
    """`client.py:88`"""
    fault = LINES.get(one.fault, one.fault)
    # Forked loaders are late with the data: their rank waits for them at the line of its loop.
    mark = "# fault: loaders" if (one.client, fault) == ("loaders", "data") else f"# fault: {fault}"
    lines = (HERE / "client.py").read_text().splitlines()
    return f"client.py:{next(i for i, line in enumerate(lines, 1) if line.endswith(mark))}"


def environ(one: Case, directory: str) -> dict[str, str]:
    """Of the launcher of client.py."""
    return {
        **os.environ, "TMPDIR": directory, "OMP_NUM_THREADS": "1", "CLIENT": one.client,
        "FAULT": LINES.get(one.fault, one.fault), "RANKS": ",".join(map(str, one.ranks)),
        "DELAY_S": str(one.delay_s),
    }  # fmt: skip


def play(one: Case, patience_s: float = PATIENCE_S) -> Outcome:
    """Launch it, and read its record until it is decided."""
    with tempfile.TemporaryDirectory() as directory:
        script = str(HERE / "client.py")
        words = [script]
        if one.client == "bundled":
            words = ["--", "--task", f"{script}:OwnTask", *BUNDLED, "--out", f"{directory}/out"]
        command = [
            sys.executable, "-m", "spawnlaunch", "--nproc", str(one.size), "--oversubscribe",
            "--quiet", "--record", directory, *words,
        ]  # fmt: skip
        with open(f"{directory}/output", "w+") as output:
            launch = subprocess.Popen(
                command, stdout=output, stderr=output, env=environ(one, directory),
                start_new_session=True,
            )  # fmt: skip
            began = time.monotonic()
            try:
                outcome = _watched(one, launch, Path(directory), began, patience_s)
            finally:
                launch.send_signal(signal.SIGTERM)
                try:
                    launch.wait(60)
                except subprocess.TimeoutExpired:
                    os.killpg(launch.pid, signal.SIGKILL)
            output.seek(0)
            return outcome._replace(said=output.read()[-2000:])


def _watched(
    one: Case, launch: subprocess.Popen[bytes], directory: Path, began: float, patience_s: float
) -> Outcome:
    kind = KINDS.get(one.fault, "waited for")
    first = None
    while True:
        events = [*_events(directory)]
        notes = [event for event in events if event["kind"] == "note"]
        named = {note["rank"]: note["words"] for note in notes if note["note"] == kind}
        others = [f"{n['rank']}: {n['words']}" for n in notes if n["note"] == "waited for"]
        shares = [event for event in events if event["kind"] == "wait_shares"]
        first = first or (time.monotonic() if shares else None)
        passed_s = time.monotonic() - first if first else 0.0
        is_over = passed_s > patience_s or (
            one.fault == "none" and passed_s > HEALTHY_S and len(shares) >= HEALTHY_LOOKS
        )
        is_found = one.fault != "none" and len(named) >= (
            len(one.ranks) if kind == "waited for" else 1
        )
        if (
            is_over
            or is_found
            or launch.poll() is not None
            or time.monotonic() - began > max(MOST_S, patience_s)
        ):
            return Outcome(named, others, time.monotonic() - began, "")
        time.sleep(0.5)


def _events(directory: Path) -> Iterator[dict[str, Any]]:
    for path in directory.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            try:
                yield json.loads(line)
            except ValueError:  # it is being written
                continue


class Score(NamedTuple):
    rank: bool
    line: bool | None  # None: there is none to be named


def score(one: Case, found: Outcome) -> Score:
    """Whether the right ranks are named and no other one, and the right line."""
    if one.fault == "none":
        return Score(not found.others, None)
    if one.fault == "mismatch":
        words = " ".join(found.named.values())
        is_named = bool(re.search(rf"\brank {one.ranks[0]} in ", words))
        return Score(is_named or (one.size == 2 and "rank" in words), None)
    right = set(found.named) == set(one.ranks)
    if one.fault in KINDS or one.client == "thread":  # looks are at main threads
        return Score(right, None)
    at = f"it is at {line_of(one)}"
    return Score(right, right and all(at in words for words in found.named.values()))

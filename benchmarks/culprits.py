"""Run the same faults under TraceML and spawnlaunch, and compare the ranks that they name.

    python -m benchmarks.culprits [--seeds N] [--most-ranks N] [--write]

Of the seeds of tests/culprit that are DDP by hand, the first N of each fault that makes
a rank late in each step, and of none. Each runs under `traceml run`, with traced_client.py, which
has the lines that TraceML asks for, and then under spawnlaunch with --record, one at a time. The
verdict in TraceML's final report names one rank, so for it either of two slow ranks is right;
spawnlaunch has to name both. --write puts the table into docs/comparison.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

from benchmarks.report import machine
from docs.generate import with_section
from tests.culprit.launches import HERE, MOST_S, Case, case, environ, play, score
from tests.support.ports import free_port

PAGE = HERE.parent.parent / "docs" / "comparison.md"
FAULTS = {
    "data": "late data",
    "compute": "slow compute in `forward`",
    "sleep": "a sleep before `forward`",
    "lock": "a lock before `forward`",
    "two": "late data on two ranks (TraceML: one of them)",
    "none": "none",
}
PHASES = {"data": "INPUT_STRAGGLER", "two": "INPUT_STRAGGLER", "compute": "COMPUTE_STRAGGLER"}
STEPS, HEALTHY_STEPS = 60, 2000  # a healthy step takes milliseconds
COLUMNS = ("fault", "runs", "spawnlaunch: right rank", "its line", "TraceML: right rank",
           "its phase")  # fmt: skip


class Verdict(NamedTuple):
    kind: str
    ranks: tuple[int, ...]  # that are slower than the others
    words: str


def traced(one: Case) -> Verdict:
    """Run a case under TraceML, and return the verdict of its final report."""
    steps = HEALTHY_STEPS if one.fault == "none" else STEPS
    with tempfile.TemporaryDirectory() as directory:
        command = [
            sys.executable, "-m", "traceml_ai.launcher.cli", "run", str(HERE / "traced_client.py"),
            "--nproc-per-node", str(one.size), "--master-port", str(free_port()),
            "--aggregator-port", str(free_port()), "--logs-dir", directory, "--run-name", "run",
        ]  # fmt: skip
        words = {"STEPS": str(steps), "PYTHONPATH": f"{HERE.parent.parent}"}
        with open(f"{directory}/output", "w+") as output:
            launch = subprocess.Popen(
                command, stdout=output, stderr=output, env=environ(one, directory) | words,
                start_new_session=True,
            )  # fmt: skip
            _end(launch)
            output.seek(0)
            said = output.read()[-2000:]
        try:
            report = json.loads(Path(directory, "run", "final_summary.json").read_text())
        except FileNotFoundError:
            return Verdict("no report", (), said)
    found = report["step_time"]["diagnosis"]
    ranks = tuple(found["ranks"]) if found["kind"].endswith("STRAGGLER") else ()
    return Verdict(found["kind"], ranks, found["summary"])


def _end(launch: subprocess.Popen[bytes]) -> None:
    """Wait for the end of the run; one that takes too long is ended."""
    for patience_s, sent in ((MOST_S, signal.SIGTERM), (60.0, signal.SIGKILL)):
        try:
            launch.wait(patience_s)
            return
        except subprocess.TimeoutExpired:
            os.killpg(launch.pid, sent)
    launch.wait()


def first(fault: str, n: int, most_ranks: int) -> Iterator[Case]:
    """Yield the first `n` cases of the suite with a fault, of at most so many ranks."""
    cases = (one for one in map(case, count()) if (one.client, one.fault) == ("ddp", fault))
    return islice((one for one in cases if one.size <= most_ranks), n)


def compare(one: Case, counted: Counter[tuple[str, str]]) -> None:
    """Run a case under both, print both verdicts, and count the right ones."""
    theirs, ours = traced(one), play(one)
    right = score(one, ours)
    is_right = set(theirs.ranks) <= set(one.ranks) and bool(theirs.ranks) == bool(one.ranks)
    is_right = is_right and theirs.kind not in ("no report", "NO_DATA")
    counted[one.fault, "runs"] += 1
    counted[one.fault, "spawnlaunch: right rank"] += right.rank
    counted[one.fault, "its line"] += right.line is True
    counted[one.fault, "TraceML: right rank"] += is_right
    counted[one.fault, "its phase"] += is_right and theirs.kind == PHASES.get(one.fault)
    mine = "; ".join(f"rank {r}: {w}" for r, w in ours.named.items()) or "nobody is named"
    print(one, f"load {os.getloadavg()[0]:.0f}")
    print("     TraceML", "right:" if is_right else "WRONG:", theirs.kind, theirs.words)
    print("     spawnlaunch", "right:" if right.rank else "WRONG:", mine, flush=True)
    if not right.rank:
        print("    ", ours.others, ours.said[-1000:], flush=True)


def table(counted: Counter[tuple[str, str]]) -> Iterator[str]:
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|---" * len(COLUMNS) + "|"
    for fault, title in FAULTS.items():
        cells = [str(counted[fault, column]) for column in COLUMNS[1:]]
        if fault == "none":
            cells[1::2] = [f"nobody in {n}" for n in cells[1::2]]
            cells[2::2] = ["", ""]
        yield f"| {title} | {' | '.join(cells)} |"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="of each fault")
    parser.add_argument("--most-ranks", type=int, default=5, metavar="N", help="at least 5")
    parser.add_argument("--write", action="store_true", help=f"into docs/{PAGE.name} too")
    options = parser.parse_args(argv)
    if find_spec("traceml_ai") is None:
        parser.error(f"not installed: traceml-ai; type {sys.executable} -m pip install traceml-ai")
    if options.seeds < 1 or options.most_ranks < 5:
        parser.error("there are no such cases; type --seeds 1 or more, --most-ranks 5 or more")
    cases = [one for fault in FAULTS for one in first(fault, options.seeds, options.most_ranks)]
    counted: Counter[tuple[str, str]] = Counter()
    loads = [os.getloadavg()[0]]
    for one in cases:
        compare(one, counted)
        loads.append(os.getloadavg()[0])
    words = [word for word in (argv or sys.argv[1:]) if word != "--write"]
    text = "\n".join([
        *table(counted),
        "",
        f"`{shlex.join(['python', '-m', 'benchmarks.culprits', *words])}`, "
        f"{time.strftime('%Y-%m-%d')}, load {min(loads):.0f} to {max(loads):.0f}: {machine()}, "
        f"traceml-ai {version('traceml-ai')}",
    ])  # fmt: skip
    print(text)
    if options.write:
        PAGE.write_text(with_section(PAGE.read_text(), "culprits", text))
    return 0


if __name__ == "__main__":
    sys.exit(main())

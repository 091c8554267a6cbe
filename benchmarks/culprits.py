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
from tests.culprit import launches
from tests.culprit.launches import HERE, MOST_S, Case
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


def traced(case: Case) -> Verdict:
    """Run a case under TraceML, and return the verdict of its final report."""
    steps = HEALTHY_STEPS if case.fault == "none" else STEPS
    with tempfile.TemporaryDirectory() as directory:
        command = [
            sys.executable, "-m", "traceml_ai.launcher.cli", "run", str(HERE / "traced_client.py"),
            "--nproc-per-node", str(case.size), "--master-port", str(free_port()),
            "--aggregator-port", str(free_port()), "--logs-dir", directory, "--run-name", "run",
        ]  # fmt: skip
        words = {"STEPS": str(steps), "PYTHONPATH": f"{HERE.parent.parent}"}
        with open(f"{directory}/output", "w+") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=output, start_new_session=True,
                env=launches.environ(case, directory) | words,
            )  # fmt: skip
            _end(process)
            output.seek(0)
            output_tail = output.read()[-2000:]
        try:
            report = json.loads(Path(directory, "run", "final_summary.json").read_text())
        except FileNotFoundError:
            return Verdict("no report", (), output_tail)
    diagnosis = report["step_time"]["diagnosis"]
    ranks = tuple(diagnosis["ranks"]) if diagnosis["kind"].endswith("STRAGGLER") else ()
    return Verdict(diagnosis["kind"], ranks, diagnosis["summary"])


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
    cases = (
        case for case in map(launches.case, count()) if (case.client, case.fault) == ("ddp", fault)
    )
    return islice((case for case in cases if case.size <= most_ranks), n)


def compare(case: Case, counted: Counter[tuple[str, str]]) -> None:
    """Run a case under both, print both verdicts, and count the right ones."""
    verdict, played = traced(case), launches.play(case)
    right = launches.score(case, played)
    is_right = set(verdict.ranks) <= set(case.ranks) and bool(verdict.ranks) == bool(case.ranks)
    is_right = is_right and verdict.kind not in ("no report", "NO_DATA")
    counted[case.fault, "runs"] += 1
    counted[case.fault, "spawnlaunch: right rank"] += right.rank
    counted[case.fault, "its line"] += right.line is True
    counted[case.fault, "TraceML: right rank"] += is_right
    counted[case.fault, "its phase"] += is_right and verdict.kind == PHASES.get(case.fault)
    mine = "; ".join(f"rank {r}: {w}" for r, w in played.named.items()) or "nobody is named"
    print(case, f"load {os.getloadavg()[0]:.0f}")
    print("     TraceML", "right:" if is_right else "WRONG:", verdict.kind, verdict.words)
    print("     spawnlaunch", "right:" if right.rank else "WRONG:", mine, flush=True)
    if not right.rank:
        print("    ", played.others, played.said[-1000:], flush=True)


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
    cases = [case for fault in FAULTS for case in first(fault, options.seeds, options.most_ranks)]
    counted: Counter[tuple[str, str]] = Counter()
    loads = [os.getloadavg()[0]]
    for case in cases:
        compare(case, counted)
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

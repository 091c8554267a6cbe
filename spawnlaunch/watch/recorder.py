"""The process of --record: it writes samples and events of one launch on this node as JSON lines.

A file for each launch and node (journal.py has its name), one object a line. `kind` is its kind,
`time` is seconds since 1970:

    start     "launch": the mark of the run, "host", "command", and "explain": all that
              --explain=json prints of the launch: world, sources, node, workers
    attempt   workers were started: "restart" from 0, "pids" by rank, "since" when (monotonic
              clock, seconds), and "world": variables that were not known before nodes had met
    output    the first line of "rank" was seen
    collective  the bundled loop says that the first one of "rank" is over; "at" is when
    sample    "ranks", and for each figure a list in their order: cpu (cores used), memory, peak,
              memory_below, threads, processes, reads, writes, quiet_s, device_use, device_memory,
              device_temperature, device_clock, phase, step, loss, rate, data_s, compute_s, wait_s;
              see usage.py, device_use.py and progress.py; null is not known, a figure that no rank
              has is left out
    wait_shares  "ranks", and for each "wait_share" and "late_share": the shares of the last time in
              which it waited for others in collectives, and others for it (hang/culprits.py)
    note      a remark that is new, and each place of a hang: "rank", "note"
              (notes.py has the kinds), "words"
    said      the launcher said "words" about "what": failure, signal, timeout, silent, hang, ...
    roll      the roll was called: "words", a line for each group of ranks, the smallest first, and
              "groups" of them, each with its "ranks"
    ended     a rank, with its fields of --result
    restart   "words"
    end       "status", "cause", "words" of the report, and "traceback" of the first failure

Samples are taken twice a second at first, and ever more rarely: after a fiftieth of the time
that has passed, at most after ten seconds.

Where a launch has several nodes, the ranks of all nodes are asked at the same moments, and their
last answers are in a file beside the record (NAME.answers): so the report compares all of them.
"""

from __future__ import annotations

import json
import os
import select
import sys
from contextlib import suppress
from typing import Any, TextIO

from spawnlaunch.base import machine
from spawnlaunch.hang import asked
from spawnlaunch.watch import device_use, notes, usage, waiting
from spawnlaunch.workers import files

SHORTEST_S, LONGEST_S, SHARE = 0.5, 10.0, 0.02
OF_A_RANK = ("cpu", "memory", "peak", "memory_below", "threads", "processes", "reads", "writes",
             "quiet_s")  # fmt: skip
OF_A_DEVICE = ("use", "memory", "temperature", "clock")
OF_THE_LOOP = ("phase", "step", "loss", "rate", "data_s", "compute_s", "wait_s")
NICE = 10  # beside workers that want the processors
TOGETHER_S = 5.0  # the ranks of several nodes are asked when a clock shows a multiple of it
MOST_CALLS = 120  # of a rank, in the file of answers
NODE_SCOPE = " (of the ranks of this node)"


def main(path: str, mark: str) -> None:
    """Record the events from stdin, and samples of the launch's ranks, until stdin ends."""
    with suppress(OSError):
        os.nice(NICE)
    try:
        with open(files.opened(path, os.O_WRONLY | os.O_APPEND), "a", encoding="utf-8") as file:
            _Recording(file, mark, answers_file(path)).run()
    except OSError as error:
        print(f"spawnlaunch: cannot write {path}: {error.strerror}; the record ends here",
              file=sys.stderr, flush=True)  # fmt: skip
        while machine.read(0, 1 << 16):  # it has been said: the launcher need not say it again
            pass


def answers_file(path: str) -> str:
    """The file of the ranks' last answers that belongs to a record."""
    return f"{path.removesuffix('.jsonl')}.answers"


class _Recording:
    def __init__(self, file: TextIO, mark: str, answers_file: str) -> None:
        self._file, self._mark = file, mark
        self._has_several_nodes, self._answers_file = False, answers_file
        self._answers: dict[int, dict[int, Any]] = {}  # the last two, by moment and rank
        # In TOGETHER_S since 1970: the present moment, and the one at which the ranks were asked.
        self._moment = self._question_moment = 0
        self._samples: list[usage.Sample] = []  # the last ones
        self._rest = b""
        self._began = self._due = machine.monotonic()
        self._since: dict[str, float] = {}  # by rank, when a worker was started
        # Events that come once in an attempt.
        self._written_once: set[tuple[str, int, str, str]] = set()
        self._sampler = usage.Sampler(device_use.Meter(), lambda rank: rank.launch == self._mark)
        self._histories = notes.Histories()
        self._waiting = waiting.Inquiry()

    def run(self) -> None:
        """Record until the pipe ends."""
        while True:
            timeout_s = self._due - machine.monotonic()
            if self._has_several_nodes:
                moment = int(machine.time() / TOGETHER_S)
                if moment != self._moment:  # at which the recorders of all nodes ask
                    self._moment = moment
                    if self._waiting.start_if_due(self._samples):
                        self._question_moment = moment
                timeout_s = min(timeout_s, TOGETHER_S - machine.time() % TOGETHER_S)
            sources = [0, *self._waiting.fds]
            ready = select.select(sources, [], [], max(0.0, timeout_s))[0]
            if self._waiting.read():
                self._judge()
            if 0 in ready:
                data = machine.read(0, 1 << 16)
                if not data:
                    return
                *lines, self._rest = (self._rest + data).split(b"\n")
                for event in map(json.loads, lines):
                    if event["kind"] == "attempt":
                        self._since = event["since"]
                        self._has_several_nodes = event["world"].get("GROUP_WORLD_SIZE", "1") != "1"
                        self._written_once.clear()
                        self._due = machine.monotonic() + SHORTEST_S
                    self._write(event)
            elif machine.monotonic() >= self._due:  # a sample of many ranks takes seconds
                self._sample()

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def _sample(self) -> None:
        now = machine.monotonic()
        samples = [each for each in self._sampler.sample() if each.memory]  # else it is ending
        self._due = now + min(LONGEST_S, max(SHORTEST_S, SHARE * (now - self._began)))
        if not samples:
            return
        self._histories.add(samples)
        for sample in samples:
            since, progress = self._since.get(str(sample.rank)), sample.progress
            if sample.output_at is not None and since is not None and sample.output_at > since:
                self._once("output", sample.rank)
            if progress and progress.first_collective:
                self._once("collective", sample.rank, at=round(progress.first_collective, 3))
        self._write(columns(samples))
        self._samples = samples
        if not self._has_several_nodes:
            self._waiting.start_if_due(samples)
        for note in self._histories.notes().get(self._mark, ()):
            self._once("note", note.rank, note=note.kind, words=note.words)

    def _judge(self) -> None:
        if self._has_several_nodes:
            answers = self._waiting.answers.get(self._mark, {}).items()
            last = {rank: asked.as_json(each, MOST_CALLS) for rank, each in answers}
            self._answers = {**dict([*self._answers.items()][-1:]), self._question_moment: last}
            files.write(self._answers_file, json.dumps(self._answers))
        verdict = self._waiting.verdicts.get(self._mark)
        if verdict and verdict.shares:
            ranks = sorted(verdict.shares)
            shares = {
                name: [_short(getattr(verdict.shares[rank], name)) for rank in ranks]
                for name in ("wait_share", "late_share")
            }
            now = round(machine.time(), 3)
            self._write({"kind": "wait_shares", "time": now, "ranks": ranks, **shares})
        for note in self._waiting.findings().get(self._mark, ()):
            hangs_at = note.words.partition(" so far, ")[2]  # elsewhere it is another hang
            words = note.words + NODE_SCOPE * self._has_several_nodes
            self._once("note", note.rank, hangs_at, note=note.kind, words=words)

    def _once(self, kind: str, rank: int, where: str = "", **values: Any) -> None:
        key = (kind, rank, values.get("note", ""), where)
        if key not in self._written_once:
            self._written_once.add(key)
            self._write({"kind": kind, "time": round(machine.time(), 3), "rank": rank, **values})


def columns(samples: list[usage.Sample]) -> dict[str, Any]:
    """A sample of all ranks as one line: a list for each figure."""
    parts = (
        ("", OF_A_RANK, samples),
        ("device_", OF_A_DEVICE, [sample.device for sample in samples]),
        ("", OF_THE_LOOP, [sample.progress for sample in samples]),
    )
    figures = {
        f"{prefix}{name}": [each and _short(getattr(each, name)) for each in ranks]
        for prefix, names, ranks in parts
        for name in names
    }
    return {
        "kind": "sample",
        "time": round(samples[0].time, 3),
        "ranks": [sample.rank for sample in samples],
        **{
            name: each for name, each in figures.items() if any(value is not None for value in each)
        },
    }


def _short(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value

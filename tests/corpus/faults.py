"""One round of faults: what is drawn, what comes of it under a launcher, and what is judged.

Workers are killed at some moment of their run, or a launcher is, and somebody starts it again. The
moment is a time that the worker has computed, which a busy machine does not change. A launch has
succeeded if its launchers end with 0 and its last words are those of an undisturbed one. Here it
must succeed where it does under torchrun; one that ends with 0 must have the right last words; each
must end, and leave no process.
"""

from __future__ import annotations

import functools
import os
import random
import re
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.corpus.running import SPAWNLAUNCH, TORCHRUN, TRIES, Place, placed
from tests.corpus.table import PROGRAMS
from tests.support.launching import GLOO
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.processes import nothing_left_behind, processes_with, until

MOST_RESTARTS = 3
LONGEST_S = 3.0  # that a worker of one of the programs computes, half of it to import torch
# torchrun may wait for half an hour for somebody who does not come: then it has not succeeded.
# Where ours has succeeded, which it may do however torchrun ends, it has less time.
ENOUGH_S, LEAST_S, AS_OURS = 400.0, 30.0, 3.0
RANKS = 2
MEETINGS = {
    "static": "--node-rank={node} --master-addr=127.0.0.1 --master-port={port}",
    "c10d": (
        "--rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:{port} --rdzv-id=7 --local-addr=127.0.0.1"
    ),
}
FINAL = re.compile(r"final .+?(?=final |$)", re.MULTILINE)  # torchrun may tear two from their ends
TICKS = os.sysconf("SC_CLK_TCK")


class Kill(NamedTuple):
    """Who is killed when."""

    victim: str  # "worker", or the "launcher" above it
    rank: int
    cpu_s: float  # that the worker of this rank has computed by then

    def __str__(self) -> str:
        return f"{self.victim} of rank {self.rank} at {self.cpu_s:.2f} s"


class Round(NamedTuple):
    """What is drawn."""

    program: str
    nodes: int
    meeting: str  # static or c10d; on one node --standalone has torchrun use the latter
    kills: tuple[Kill, ...]

    def __str__(self) -> str:
        nodes = "one node" if self.nodes == 1 else f"{self.nodes} nodes"
        return f"{self.program} on {nodes} ({self.meeting}), {', '.join(map(str, self.kills))}"

    def flags(self, node: int, port: int) -> tuple[str, ...]:
        if self.nodes == 1:
            meeting = "--standalone" if self.meeting == "c10d" else ""
        else:
            meeting = MEETINGS[self.meeting].format(node=node, port=port)
        size = f"--nnodes={self.nodes} --nproc-per-node={RANKS // self.nodes}"
        return tuple(f"{size} --max-restarts={MOST_RESTARTS} {meeting}".split())


class Ended(NamedTuple):
    """What has come of a round under a launcher."""

    statuses: tuple[int | None, ...]  # of the launchers; None: it has not ended
    final: frozenset[str]
    killed: int
    said: str

    def succeeded(self, right: frozenset[str]) -> bool:
        return not any(status != 0 for status in self.statuses) and self.final == right

    def __str__(self) -> str:
        return "+".join("waits" if each is None else str(each) for each in self.statuses)


def draw(rng: random.Random, nodes: int | None = None) -> Round:
    nodes = nodes or rng.choice((1, 2))
    kills = [
        Kill(
            "launcher" if nodes > 1 and rng.random() < 0.5 else "worker",
            rng.randrange(RANKS),
            rng.uniform(0.0, LONGEST_S),
        )
        for _ in range(rng.randint(1, MOST_RESTARTS))
    ]
    program = rng.choice([each.name for each in PROGRAMS if each.again])
    return Round(program, nodes, rng.choice(sorted(MEETINGS)), tuple(kills))


def judged(drawn: Round) -> tuple[str, str]:
    """What came under both, in a line, and what was wrong here ("" for nothing)."""
    right = undisturbed(drawn.program, drawn.nodes, drawn.meeting)
    for _ in range(TRIES):
        began = time.monotonic()
        try:
            ours = played(drawn, SPAWNLAUNCH, PATIENCE_S)
        except AssertionError as error:
            return "spawnlaunch has not ended, or left somebody", str(error)
        took_s = time.monotonic() - began
        if ours.succeeded(right) or GLOO not in ours.said:
            break
    enough_s = LEAST_S + AS_OURS * took_s if ours.succeeded(right) else ENOUGH_S
    theirs = played(drawn, TORCHRUN, enough_s)
    words = f"torchrun {theirs} ({theirs.killed} killed), spawnlaunch {ours} ({ours.killed} killed)"
    wrong = _wrong(theirs, ours, right)
    return words, f"{wrong}\n{ours.said}" if wrong else ""


def _wrong(theirs: Ended, ours: Ended, right: frozenset[str]) -> str:
    if "internal error" in ours.said:
        return "an error of ours"
    if theirs.succeeded(right) and not ours.succeeded(right):
        return "it has succeeded under torchrun"
    if not any(ours.statuses) and ours.final != right:
        return f"not the last words {sorted(right)}, but {sorted(ours.final)}"
    return ""


@functools.cache
def undisturbed(program: str, nodes: int, meeting: str) -> frozenset[str]:
    """The last words under torchrun when nobody is killed."""
    for _ in range(TRIES):
        ended = played(Round(program, nodes, meeting, ()), TORCHRUN, PATIENCE_S)
        if not any(ended.statuses) and ended.final:
            return ended.final
    raise AssertionError(f"{program} does not run undisturbed: {ended.said}")


def played(drawn: Round, launcher: str, within_s: float) -> Ended:
    """Play it with real processes."""
    with (
        tempfile.TemporaryDirectory(prefix="corpus-") as top,
        placed(Path(top) / "place") as place,
    ):
        playing = _Playing(drawn, launcher, place)
        if launcher == TORCHRUN:  # it leaves workers behind, which are ended with the place
            return playing.play(within_s)
        with nothing_left_behind(place.mark):
            ended = playing.play(within_s)
            assert None not in ended.statuses, f"it has not ended\n{ended.said}"
        return ended


class _Playing:
    """A launch that is disturbed."""

    def __init__(self, drawn: Round, launcher: str, place: Place) -> None:
        self._drawn, self._launcher, self._place = drawn, launcher, place
        (program,) = (each for each in PROGRAMS if each.name == drawn.program)
        self._program = program._replace(line=program.script)
        self._port = free_port()
        self._launchers: list[subprocess.Popen[Any]] = []
        self._killed: set[int] = set()

    def play(self, within_s: float) -> Ended:
        deadline = time.monotonic() + within_s
        self._launchers = [self._start(node) for node in range(self._drawn.nodes)]
        for kill in self._drawn.kills:
            self._kill(kill, deadline)
        with suppress(AssertionError):
            until(self._have_ended, "all launchers", deadline - time.monotonic())
        final = FINAL.findall("\n".join(self._place.lines()))
        statuses = tuple(launcher.poll() for launcher in self._launchers)
        said = self._place.stderr[-6000:]
        for launcher in self._launchers:
            launcher.kill()
            launcher.wait()
        return Ended(statuses, frozenset(final), len(self._killed), said)

    def _start(self, node: int) -> subprocess.Popen[Any]:
        flags = self._drawn.flags(node, self._port)
        return self._place.start(self._launcher, self._program, flags, node)

    def _have_ended(self) -> bool:
        return None not in [launcher.poll() for launcher in self._launchers]

    def _kill(self, kill: Kill, deadline: float) -> None:
        """Wait for the moment; nobody is killed where it does not come."""
        found: list[int] = []

        def is_time() -> bool:
            found[:] = [pid for pid in self._workers(kill.rank) if _computed(pid) >= kill.cpu_s]
            return bool(found) or self._have_ended()

        with suppress(AssertionError):
            until(is_time, f"{kill}", deadline - time.monotonic())
        for pid in found[:1]:
            if kill.victim == "worker":
                self._strike(pid)
            else:
                self._strike_launcher(pid)

    def _workers(self, rank: int) -> list[int]:
        """Who has this rank and was not killed, but no process that such a one has started."""
        return [
            pid
            for pid in processes_with(self._place.mark)
            if pid not in self._killed
            and f"RANK={rank}" in _environ(pid)
            and not any(word.startswith("RANK=") for word in _environ(_parent(pid)))
        ]

    def _strike(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self._killed.add(pid)

    def _strike_launcher(self, pid: int) -> None:
        """Kill the launcher of a worker, and start it again."""
        pids = [launcher.pid for launcher in self._launchers]
        while pid > 1 and pid not in pids:
            pid = _parent(pid)
        if pid in pids:
            node = pids.index(pid)
            self._strike(pid)
            self._launchers[node].wait()
            self._launchers[node] = self._start(node)


def _computed(pid: int) -> float:
    """In seconds; see proc(5), utime and stime."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS
    return 0.0


def _parent(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    return 0


def _environ(pid: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return []

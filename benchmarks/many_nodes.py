"""What several nodes cost a launcher: memory, and 256 of them at one hub.

    python -m benchmarks.many_nodes [--rounds 5] [--write]

The launchers of one node, of two and of the hub of 256 are real. The 255 others are their parts of
the gang alone, with the real rules, HMAC and sockets, in this process, which takes its share of the
CPUs: so the times are longer than those of 256 machines' launchers would be.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks import report
from benchmarks.processes import ENOUGH_S, ROOT
from benchmarks.report import Goal, Section, cell
from spawnlaunch.gang import member_records as records
from spawnlaunch.gang.link import Endpoint
from spawnlaunch.gang.messages import VERSION, Cause, Hello, Start
from spawnlaunch.gang.part import Part
from spawnlaunch.gang.wire import secret_of
from spawnlaunch.run.loop import Loop

ROUNDS = 5
NODES = 256
RUN = "7"
SETTLED_S = 2.5  # after which a launcher has imported the rest
OURS = (sys.executable, "-m", "spawnlaunch", "--quiet", "--nproc=1", "--failure-grace=1")
WORKER = ("--no-python", "sleep", "600")


class Member:
    """A launcher without processes: its part of the gang."""

    def __init__(self, loop: Loop, number: int, endpoint: Endpoint) -> None:
        hello = Hello(VERSION, f"node{number}", f"{number}", 1, rank=number, port=20000 + number)
        self.part = Part(loop, endpoint, hello, 600.0, self)
        self.did: dict[str, float] = {}  # when
        self.rank = -1
        self.end: tuple[int, Cause | None] | None = None
        self.loop = loop

    def fail(self) -> None:
        self.part.happened(records.WorkerFailed(self.rank, 7))
        self._ended()

    def _ended(self) -> None:
        self.part.happened(records.WorkersEnded(False, 20000))

    def launch(self, start: Start) -> None:
        self.did["start"] = time.monotonic()
        self.rank = start.first_rank

    def halt(self, _: Cause, grace_s: float) -> None:
        self.did["stop"] = time.monotonic()
        self.loop.alarm(self._ended, min(0.0, grace_s))  # no worker needs it

    def show_stacks(self) -> None:
        self.part.happened(records.StacksShown())

    def note(self, kind: str, about: tuple[str, ...]) -> None:
        pass

    def exit(self, status: int, cause: Cause | None) -> None:
        self.did["exit"] = time.monotonic()
        self.end = status, cause


@contextmanager
def launcher(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        (*OURS, *words, *WORKER), env=environ, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(ENOUGH_S)


def of_several(port: int, nodes: int, number: int) -> tuple[str, ...]:
    return (
        f"--nnodes={nodes}", f"--node-rank={number}", f"--rdzv-endpoint=127.0.0.1:{port}",
        f"--rdzv-id={RUN}", "--rdzv-backend=c10d", f"--rdzv-conf=is_host={int(not number)}",
        "--max-restarts=1", "--no-restart-status=7",
    )  # fmt: skip


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def wait(holds: Callable[[], object], what: str) -> None:
    end = time.monotonic() + ENOUGH_S
    while not holds():
        if time.monotonic() > end:
            raise RuntimeError(f"never {what}")
        time.sleep(0.01)


def is_listening(port: int) -> bool:
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


def processes(pid: int) -> list[int]:
    """A launcher, its guard and the worker, once they are there."""
    found = [pid]
    for one in found:
        found += map(int, Path(f"/proc/{one}/task/{one}/children").read_text().split())
    return found


def own_mib(pid: int) -> float:
    """Of launcher and guard: what is theirs, and their share of what others have as well (PSS)."""
    wait(lambda: len(processes(pid)) > 2, "a worker")
    rollups = [Path(f"/proc/{one}/smaps_rollup").read_text() for one in processes(pid)[:2]]
    return sum(int(re.findall(r"^Pss: +(\d+)", text, re.M)[0]) for text in rollups) / 1024


def memory() -> tuple[float, float, float]:
    """In MiB, at one moment: on one node, a member of two, and their hub."""
    port = free_port()
    with (
        launcher() as alone,
        launcher(*of_several(port, 2, 0)) as hub,
        launcher(*of_several(port, 2, 1)) as member,
    ):
        wait(lambda: all(len(processes(p.pid)) > 2 for p in (alone, hub, member)), "workers")
        time.sleep(SETTLED_S)
        return own_mib(alone.pid), own_mib(member.pid), own_mib(hub.pid)


def many() -> dict[str, float]:
    """256 nodes: seconds until all were told to start, to stop and to end; MiB of the hub's."""
    port = free_port()
    with launcher() as alone, launcher(*of_several(port, NODES, 0)) as hub:
        wait(lambda: is_listening(port), "a hub")
        endpoint = Endpoint("127.0.0.1", port, RUN, secret_of(None, RUN))
        loop = Loop()
        members = [Member(loop, number, endpoint) for number in range(1, NODES)]
        began = time.monotonic()
        for one in members:
            one.part.begin()
        turn(loop, lambda: all("start" in one.did for one in members))
        start_s = max(one.did["start"] for one in members) - began
        turn_for(loop, SETTLED_S)
        extra = own_mib(hub.pid) - own_mib(alone.pid)
        failed = time.monotonic()
        failing = members[NODES // 2]
        failing.fail()
        others = [one for one in members if one is not failing]
        turn(loop, lambda: all("exit" in one.did for one in members))
        assert len({one.end for one in members}) == 1
        assert failing.end
        assert failing.end[0] == 7
        stop_s = max(one.did["stop"] for one in others) - failed
        end_s = max(one.did["exit"] for one in members) - failed
        return {"start": start_s, "stop": stop_s, "end": end_s, "extra": extra}


def turn(loop: Loop, holds: Callable[[], bool]) -> None:
    end = time.monotonic() + ENOUGH_S
    while not holds():
        if time.monotonic() > end:
            raise RuntimeError(f"{NODES} nodes were never told")
        loop.turn(0.1)


def turn_for(loop: Loop, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        loop.turn(0.1)


def measure(options: Namespace) -> Section:
    sizes = [memory() for _ in range(options.rounds)]
    found = [many() for _ in range(options.rounds)]
    alone, member, hub = ([size[n] for size in sizes] for n in range(3))
    extra = {key: [one[key] for one in found] for key in found[0]}
    more = [b - a for a, b in zip(alone, member, strict=True)]
    return Section(
        "many_nodes",
        "What several nodes cost",
        f"""Memory of a launcher and its guard (PSS), measured at one moment, and {NODES} nodes on
        loopback: one real launcher that has the hub, and the others' parts of the gang in one
        process; {options.rounds} rounds.""",
        ["", "MiB", "s"],
        [
            ["launcher and guard, one node", cell(alone), ""],
            ["the same, one of two nodes", cell(member), ""],
            ["the same, with their hub", cell(hub), ""],
            [f"hub of {NODES}, more than one node's", cell(extra["extra"]), ""],
            [f"{NODES} launchers seek the hub, to all told to start", "", cell(extra["start"])],
            ["a worker failed, to all told to stop", "", cell(extra["stop"])],
            ["the same, to all told the end", "", cell(extra["end"])],
        ],
        [
            Goal("one of two nodes, more MiB", median(more), 3.0, is_ratio=False),
            Goal(f"hub of {NODES}, more MiB", median(extra["extra"]), 6.0, is_ratio=False),
            Goal(f"{NODES} nodes: to start, s", median(extra["start"]), 1.0, is_ratio=False),
            Goal(f"{NODES} nodes: to stop, s", median(extra["stop"]), 0.5, is_ratio=False),
        ],
    )


if __name__ == "__main__":
    report.main("many_nodes", __doc__, measure, ROUNDS)

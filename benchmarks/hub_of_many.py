"""A hub with many members on loopback, all in one process beside it; and what a launcher costs."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.processes import ENOUGH_S, finish, lines, start
from spawnlaunch.failures import Cause
from spawnlaunch.gang.link import Endpoint, take_part
from spawnlaunch.gang.messages import VERSION, Failed, Hello, Start
from spawnlaunch.gang.server import Server
from spawnlaunch.gang.settings import Settings
from spawnlaunch.gang.wire import secret_of
from spawnlaunch.run.events import Loop

MEMBERS = 256
RUN = "benchmark"


class Seen(NamedTuple):
    """What one hub of many was measured to do."""

    start_s: float  # from the first connection to START at the last member
    stop_s: float  # from a failure to STOP at the last other one
    hub_mib: float  # that the hub's process has grown by


class Member:
    """A launcher that only counts what it is told."""

    def __init__(self, loop: Loop, endpoint: Endpoint, number: int) -> None:
        self.start: Start | None = None
        self.is_stopped = False
        hello = Hello(VERSION, f"node{number}", f"{number}", nproc=8, port=20000 + number)
        self.part = take_part(loop, endpoint, hello, ENOUGH_S, self)

    def launch(self, start: Start) -> None:
        self.start = start

    def halt(self, _: Cause, grace_s: float) -> None:  # noqa: ARG002
        self.is_stopped = True

    def show_stacks(self) -> None: ...

    def tell(self, line: str) -> None: ...

    def await_hub(self, limit_s: float) -> None: ...

    def exit(self, status: int, cause: Cause | None) -> None:
        raise RuntimeError(f"a member ends with {status}: {cause}")


def seen() -> Seen:
    """One measurement."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    endpoint = Endpoint("127.0.0.1", port, RUN, secret_of(None, RUN))
    hub = os.fork()
    if hub == 0:
        _be_hub(endpoint)
    try:
        return _measured(endpoint, hub)
    finally:
        os.kill(hub, signal.SIGKILL)
        os.waitpid(hub, 0)


def _be_hub(endpoint: Endpoint) -> None:
    loop = Loop()
    settings = Settings(least=MEMBERS, most=MEMBERS, join_s=ENOUGH_S)
    server = Server(loop, endpoint, settings, "hub", lambda *_: None)
    while not server.is_over:
        loop.turn(5.0)
    os._exit(0)


def _measured(endpoint: Endpoint, hub: int) -> Seen:
    while True:  # until it listens
        with socket.socket() as probe:
            if not probe.connect_ex((endpoint.host, endpoint.port)):
                break
    before_mib, loop = pss_mib([hub]), Loop()
    members = [Member(loop, endpoint, number) for number in range(MEMBERS)]
    began = time.monotonic()
    for member in members:
        member.part.begin()
    _turn(loop, lambda: all(member.start for member in members))
    start_s, hub_mib = time.monotonic() - began, pss_mib([hub]) - before_mib
    first, *others = members
    start = first.start
    assert start
    began = time.monotonic()
    cause = Cause("failure", "node0", start.first_rank, 1, "x" * 4096)
    first.part.worker_failed(Failed(start.epoch, cause))
    _turn(loop, lambda: all(member.is_stopped for member in others))
    return Seen(start_s, time.monotonic() - began, hub_mib)


def _turn(loop: Loop, holds: Callable[[], bool]) -> None:
    end = time.monotonic() + ENOUGH_S
    while not holds():
        if time.monotonic() > end:
            raise RuntimeError("the hub has not told all")
        loop.turn(1.0)


def pss_mib(pids: list[int]) -> float:
    """The memory of some processes, of what they share a part."""
    texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
    return sum(int(re.findall(r"^Pss: +(\d+)", text, re.M)[0]) for text in texts) / 1024


def launcher_mib() -> float:
    """By how much a launcher that takes part is larger than one of one node, guards included."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = ("--no-python", "sh", "-c", "echo began; exec sleep 600")
    ours = (sys.executable, "-m", "spawnlaunch", "--quiet", "--nproc=1")
    gang = ("--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-backend=static")
    interface = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    launchers: list[subprocess.Popen[bytes]] = []
    try:
        for flags in ((), (*gang, "--node-rank=0"), (*gang, "--node-rank=1")):
            launchers.append(start((*ours, *flags, *program), interface))
        for launcher in launchers:
            lines(launcher, 1, "began")
        alone, _, member = (pss_mib([one.pid, *_children(one.pid)]) for one in launchers)
        return member - alone
    finally:
        for launcher in launchers:
            finish(launcher)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

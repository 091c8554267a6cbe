"""Break workers, launchers, guards, nodes and cables of real launches on four nodes, at random.

After each, nodes that had no fault of their own have one status and one first failure, the workers
of each attempt were told one world, and no process is left anywhere.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

from tests.multinode.cluster import Cluster
from tests.multinode.namespaces import Network

HOSTS = "abcd"
LOST, STOPPED = 69, 143
# Attempts after the first are short.
WORKER = (
    "echo begin $RANK $WORLD_SIZE $TORCHELASTIC_RESTART_COUNT $MASTER_ADDR $MASTER_PORT; "
    "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exec sleep 8; exec sleep 1"
)
FLAGS = ("--lost-after=2", "--failure-grace=1", "--grace=2", "--nproc=1")
CONF = "--rdzv-conf=last_call_timeout=5,join_timeout=45"  # that is for more than may be lost
AGAIN = ("--max-restarts=3", "--return-timeout=3")  # nobody comes back
MODES = {
    "once": ("--nnodes=4",),
    "again": ("--nnodes=4", *AGAIN),
    "spare": ("--nnodes=3", "--spares=1", *AGAIN, CONF),
    "elastic": ("--nnodes=3:4", *AGAIN, CONF),
}
DEATHS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGUSR1)
KINDS = ("worker", "worker", "worker", "launcher", "guard", "node", "cable", "signal")


class Wrong(AssertionError):
    """Something that must hold after a round does not."""


class Round:
    """One launch, and what breaks in it."""

    def __init__(self, network: Network, directory: Path, seed: int) -> None:
        self.random = Random(seed)
        self.directory = directory
        self.mode = self.random.choice([*MODES])
        self.cluster = Cluster(network, directory, *MODES[self.mode], *FLAGS)
        self.network = network
        self.faults: list[str] = []
        self.hurt: set[str] = set()  # nodes that may end otherwise than the others
        self.expected: tuple[int, str] | None = None  # the status, and what is said of the cause

    def run(self) -> None:
        for host in HOSTS:
            self.cluster.start_on(host, "--no-python", "sh", "-c", WORKER)
        working = self.wait_for_workers()
        time.sleep(self.random.uniform(0, 1))
        count = self.random.choice((1, 1, 2))
        for _ in range(count):
            self.breaks(self.random.choice(KINDS), self.random.choice(HOSTS), working)
            time.sleep(self.random.choice((0.0, self.random.uniform(0, 2))))
        if count > 1:
            self.expected = None
        self.statuses = self.cluster.statuses()
        self.cluster.nothing_left()
        self.check()

    def wait_for_workers(self) -> list[str]:
        """The nodes that have begun the first attempt."""
        count = 3 if self.mode == "spare" else 4
        working: list[str] = []
        end = time.monotonic() + 200
        while len(working) < count:
            if time.monotonic() > end:
                raise Wrong(f"they have not begun\n{self.cluster.texts()}")
            time.sleep(0.02)
            working = [host for host in HOSTS if "begin" in self.cluster.text(host)]
        return working

    # Faults

    def breaks(self, kind: str, host: str, working: list[str]) -> None:
        launcher = self.cluster.processes[host]
        if launcher.poll() is not None:
            return
        self.faults.append(f"{kind} of {host}")
        getattr(self, f"break_{kind}")(host)
        if kind != "worker":
            self.expected = self.expectation(kind, host, host in working)

    def expectation(self, kind: str, host: str, works: bool) -> tuple[int, str] | None:
        """How the sound nodes end, where this is the only fault."""
        if self.mode in ("spare", "elastic") and host != "a":
            return 0, ""
        if kind == "signal":
            return STOPPED, f"the launcher on node{host} got SIGTERM"
        if host != "a" and not works:
            return 0, ""
        if self.mode == "once":
            return LOST, "the hub was lost" if host == "a" else f"node{host} was lost"
        return LOST, "still missing: the hub at" if host == "a" else f"still missing: node{host}"

    def break_worker(self, host: str) -> None:
        signum = self.random.choice(DEATHS)
        rank = re.search(r"begin (\d+)", self.cluster.text(host))
        found = self.cluster.workers_on(host)
        for pid in found:
            self.kill(pid, signum)
        if self.mode == "once":
            who = f"rank {rank[1] if rank else '?'} on node{host}"
            why = f"{who} died of {signal.Signals(signum).name}"
            self.expected = (128 + signum, why)
        else:
            self.expected = (0, "")

    def break_launcher(self, host: str) -> None:
        self.hurts(host)
        self.kill(self.cluster.processes[host].pid, signal.SIGKILL)

    def break_guard(self, host: str) -> None:
        self.hurts(host)
        for guard in self.cluster.guards(host):
            self.kill(guard, signal.SIGKILL)

    def break_node(self, host: str) -> None:
        """All its processes at once; its kernel lives, and closes their connections."""
        self.hurts(host)
        self.network.kill(host)

    def break_cable(self, host: str) -> None:
        self.hurts(host)
        self.network.cut(host)

    def break_signal(self, host: str) -> None:
        if self.mode in ("spare", "elastic") and host != "a":
            self.hurts(host)
        self.kill(self.cluster.processes[host].pid, signal.SIGTERM)

    def hurts(self, host: str) -> None:
        self.hurt.add(host)

    def kill(self, pid: int, signum: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signum)

    # What must hold

    def check(self) -> None:
        sound = [host for host in HOSTS if host not in self.hurt]
        ends = {host: (self.statuses[host], self.cluster.why(host)) for host in sound}
        self.holds(len(set(ends.values())) <= 1, f"sound nodes end alike: {ends}")
        if self.expected and ends:
            status, why = next(iter(ends.values()))
            self.holds(status == self.expected[0], f"status {self.expected[0]}: {ends}")
            self.holds(why.startswith(self.expected[1]), f"{self.expected[1]!r}: {ends}")
        worlds: dict[str, set[tuple[str, ...]]] = {}
        ranks: Counter[tuple[str, str]] = Counter()
        for host in HOSTS:
            for line in re.findall(r"(?m)^\[\S+\] begin (.*)", self.cluster.text(host)):
                rank, size, attempt, *master = line.split()
                worlds.setdefault(attempt, set()).add((size, *master))
                ranks[attempt, rank] += 1
        self.holds(all(len(worlds[n]) == 1 for n in worlds), f"one world per attempt: {worlds}")
        self.holds(set(ranks.values()) <= {1}, f"each rank once per attempt: {ranks}")

    def holds(self, it: bool, what: str) -> None:
        if not it:
            raise Wrong(f"{what}\n{self.cluster.texts()}")

    def __str__(self) -> str:
        return f"{self.mode}, {', '.join(self.faults)}"


def play(network: Network, directory: Path, seed: int) -> Round:
    """A round, after which the network is whole again."""
    one = Round(network, directory, seed)
    try:
        one.run()
    except AssertionError as error:
        raise Wrong(f"{one}: {error}") from None
    finally:
        for host in HOSTS:
            network.kill(host)
            network.mend(host)
    return one

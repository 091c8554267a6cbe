"""As many launchers as the largest machines have nodes connect, fail, restart and end.

    python -m benchmarks.multinode [--nodes 9408] [--rounds 8] [--write]

The hub is a real one in a process of its own, on loopback. The launchers are the real rules on the
real wire, with no workers, in a few processes beside it. So hub and launchers share the CPUs of
this machine, which launchers on nodes of their own do not: there only the hub's own CPU time, which
stands beside each time, would remain. Where it may, the hub runs before them, and they before other
programs (nice -10 and -5). Without --nodes there is a table: 64, 512, 4,096 and 9,408.
"""

import json
import os
import resource
import signal
import socket
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import report
from benchmarks.memory import pss_mib
from benchmarks.processes import cpu_s
from benchmarks.report import Section, Times, cell, goal_of_value
from spawnlaunch.base.events import Loop
from spawnlaunch.multinode.deadlines import Alarms
from spawnlaunch.multinode.link import Endpoint, Link
from spawnlaunch.multinode.messages import Failed, Hello, Start
from spawnlaunch.multinode.server import Server
from spawnlaunch.multinode.settings import Settings, beat_s
from spawnlaunch.multinode.wire import secret_of
from spawnlaunch.outcome.failures import Cause
from tests.support.ports import free_port

SIZES = (64, 512, 4096, 9408)
FRONTIER = 9408
PROCESSES = 4  # that hold the launchers
ROUNDS = 8
ENOUGH_S = 600.0
REST_S = 10.0
LOST_AFTER_S = 10.0
RUN = "benchmark"
OWN_FILES = 64  # open in a process besides its connections

GOALS_S = {"all told their ranks": 10.0, "all heard of a failure": 2.0,
           "one refused: all ended": 5.0, "one lost: all ended": 5.0}  # fmt: skip


# One process of launchers


class Launcher:
    """The launcher of one node without real workers: they end as soon as it stops them."""

    def __init__(self, crowd: "Crowd", number: int, life: int = 0, nproc: int = 8) -> None:
        self._crowd, self.number, self.life, self._epoch = crowd, number, life, 0
        hello = Hello(
            f"node{number + 1:05}", f"{number}.{life}", nproc, boot="1",
            given_node_rank=number, port=20000 + number % 40000,
        )  # fmt: skip
        self.link = Link(crowd.alarms, crowd.endpoint, hello, ENOUGH_S, self)

    def launch(self, start: Start) -> None:
        self._epoch = start.epoch
        self._crowd.note("start", self.number)

    def halt(self, _: Cause, grace_s: float) -> None:  # noqa: ARG002
        self._crowd.note("stop", self.number)
        self.link.member.workers_ended(False, 20000 + self.number % 40000)

    def fail(self) -> None:
        cause = Cause("failure", "", 8 * self.number, 1, "x" * 4096)
        self.link.member.worker_failed(Failed(self._epoch, cause))
        self.link.member.workers_ended(False, 20000 + self.number % 40000)

    def show_stacks(self) -> None: ...

    def print_line(self, line: str) -> None: ...

    def seek_hub(self, why: str, left_s: float) -> None: ...

    def await_hub(self, limit_s: float) -> None: ...

    def exit(self, status: int, cause: Cause | None) -> None:  # noqa: ARG002
        self._crowd.note("end", self.number)


class Crowd:
    """Obeys commands from a channel, and reports when enough of its launchers had an event."""

    def __init__(self, channel: socket.socket, endpoint: Endpoint, numbers: list[int]) -> None:
        self.loop, self.endpoint, self._channel = Loop(), endpoint, channel
        self.alarms = Alarms(self.loop)
        self._numbers, self._launchers = numbers, dict[int, Launcher]()
        self._noted = defaultdict[str, set[int]](set)  # numbers of the launchers, by event
        self._awaited: tuple[str, int] | None = None
        self.loop.watch(channel.fileno(), self._told)

    def run(self) -> None:
        be_rather(5)
        while True:
            self.loop.turn(5.0)

    def note(self, what: str, number: int) -> None:
        self._noted[what].add(number)
        self._look()

    def _look(self) -> None:
        if self._awaited and len(self._noted[self._awaited[0]]) >= self._awaited[1]:
            self._awaited = None
            self._channel.sendall(f"{time.monotonic()}\n".encode())

    def _told(self) -> None:
        words = self._channel.recv(4096)
        if not words:
            os._exit(0)
        for line in words.decode().splitlines():
            what, *args = json.loads(line)
            getattr(self, what)(*args)

    def begin(self, numbers: list[int], nproc: int = 8) -> None:
        """Let the launchers in [first, last] connect."""
        for number in self._of(numbers):
            one = self._launchers[number] = Launcher(self, number, nproc=nproc)
            one.link.member.begin()

    def expect(self, what: str, count: int) -> None:
        """Forget earlier events, confirm it, and report when so many launchers had this one."""
        self._noted.clear()
        self._channel.sendall(b"0\n")
        self.then(what, count)

    def then(self, what: str, count: int) -> None:
        """Report when so many launchers have had this event since the last `expect`."""
        self._awaited = (what, count)
        self._look()

    def fail(self, number: int) -> None:
        if number in self._launchers:
            self._launchers[number].fail()

    def lose(self, numbers: list[int], within_s: float, returns: bool) -> None:
        """Kill these launchers, one after the other, and start them again if they return."""
        lost = self._of(numbers)
        for n, number in enumerate(lost):
            call = partial(self._lose, number, returns)
            self.alarms.alarm(call, within_s * n / len(lost))

    def _lose(self, number: int, returns: bool) -> None:
        self._noted["start"].clear()  # all other launchers begin once more
        before = self._launchers.pop(number)
        before.link.member.state = "ended"  # a dead launcher does nothing any more
        self.alarms.alarm(before.link.member.tick, None)
        before.link.drop()
        if returns:
            one = self._launchers[number] = Launcher(self, number, before.life + 1)
            one.link.member.begin()

    def _of(self, numbers: list[int]) -> list[int]:
        return [n for n in self._numbers if numbers[0] <= n <= numbers[1]]


# The hub, and all of them


def be_rather(by: int) -> None:
    """Raise the priority of this process, where that is allowed."""
    with suppress(PermissionError):
        os.nice(-by)


def be_hub(endpoint: Endpoint, settings: Settings) -> None:
    be_rather(10)
    loop = Loop()
    server = Server(loop, endpoint, settings, "hub", lambda _: None)
    while not server.is_over:
        loop.turn(5.0)


class ManyNodes:
    """A launch: a hub, and the processes that hold its launchers."""

    def __init__(self, nodes: int, **settings: Any) -> None:
        self.nodes = nodes
        self._endpoint = Endpoint("127.0.0.1", free_port(), RUN, secret_of(None, RUN), LOST_AFTER_S)
        self._settings = Settings(
            least=nodes, most=nodes, join_s=ENOUGH_S, failure_grace_s=0.5, grace_s=0.5,
            lost_after_s=LOST_AFTER_S, beat_s=beat_s(LOST_AFTER_S, nodes), **settings,
        )  # fmt: skip
        self.hub = self.begin_hub()
        self._shares = [list(range(n, nodes, PROCESSES)) for n in range(PROCESSES)]
        self._crowds: list[tuple[int, socket.socket]] = []
        for share in self._shares:
            ours, theirs = socket.socketpair()
            pid = forked(lambda: Crowd(theirs, self._endpoint, share).run())  # noqa: B023
            theirs.close()
            self._crowds.append((pid, ours))

    def begin_hub(self) -> int:
        self.hub = forked(lambda: be_hub(self._endpoint, self._settings))
        while True:  # until it listens
            with socket.socket() as probe:
                if not probe.connect_ex((self._endpoint.host, self._endpoint.port)):
                    return self.hub

    def end_hub(self) -> None:
        os.kill(self.hub, signal.SIGKILL)
        os.waitpid(self.hub, 0)

    def say(self, *words: Any) -> None:
        for _, channel in self._crowds:
            channel.sendall(json.dumps(words).encode() + b"\n")

    def until(self, what: str, but: range = range(0), again: bool = False) -> Callable[[], float]:
        """Ask when all launchers but these have had an event; the returned function waits."""
        for (_, channel), share in zip(self._crowds, self._shares, strict=True):
            count = sum(number not in but for number in share)
            words = ["then" if again else "expect", what, count]
            channel.sendall(json.dumps(words).encode() + b"\n")
        for _, channel in self._crowds if not again else ():
            answer(channel)  # else an event from now on might be forgotten
        return lambda: max(answer(channel) for _, channel in self._crowds)

    def end(self) -> None:
        for pid, channel in self._crowds:
            channel.close()
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        with suppress(ProcessLookupError, ChildProcessError):
            self.end_hub()


def forked(run: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            run()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return pid


def answer(channel: socket.socket) -> float:
    channel.settimeout(ENOUGH_S)
    said = b""
    while not said.endswith(b"\n"):
        said += channel.recv(1) or b"0\n"
    return float(said)


@contextmanager
def many_nodes(nodes: int, **settings: Any) -> Iterator[ManyNodes]:
    made = ManyNodes(nodes, **settings)
    try:
        yield made
    finally:
        made.end()


def most_mib(pid: int) -> float:
    """The peak memory of a process (VmHWM, proc_pid_status(5))."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


# What is measured, with the hub's CPU time for it: (s, s of CPU), or a figure

Seen = dict[str, tuple[float, ...]]


def timed(
    hub: int, begin: Callable[[], None], *ends: Callable[[], float]
) -> list[tuple[float, ...]]:
    """The seconds from `begin` to each of these ends, and the hub's CPU seconds until then."""
    cpu, began = cpu_s(hub), time.monotonic()
    begin()
    return [(end() - began, cpu_s(hub) - cpu) for end in ends]


def a_life(nodes: int) -> Seen:
    """All launchers connect, rest, fail, lose a tenth, and lose their hub, with restarts."""
    seen: Seen = {}
    with many_nodes(nodes, max_restarts=9, return_s=ENOUGH_S) as one:
        empty = pss_mib([one.hub])
        told = one.until("start")
        (seen["all told their ranks"],) = timed(one.hub, lambda: one.say("begin", [0, nodes]), told)
        seen["hub's memory, MiB"] = (pss_mib([one.hub]) - empty,)
        time.sleep(beat_s(LOST_AFTER_S, nodes))
        cpu, began = cpu_s(one.hub), time.monotonic()
        time.sleep(REST_S)
        at_rest = (cpu_s(one.hub) - cpu) / (time.monotonic() - began)
        seen["hub at rest, % of a CPU"] = (100 * at_rest,)

        def again() -> float:
            return one.until("start", again=True)()

        heard = one.until("stop", but=range(1))
        seen["all heard of a failure"], seen["all began again"] = timed(
            one.hub, lambda: one.say("fail", 0), heard, again
        )
        lost = range(nodes - max(1, nodes // 10), nodes)
        heard = one.until("stop", but=lost)
        (
            seen["a tenth lost in 1 s: the others heard"],
            seen["a tenth lost in 1 s, and back: all began again"],
        ) = timed(one.hub, lambda: one.say("lose", [lost[0], nodes], 1.0, True), heard, again)

        began_again = one.until("start")
        one.end_hub()
        time.sleep(1.0)  # all try to connect to it
        began = time.monotonic()
        one.begin_hub()
        seen["the hub started again: all began again"] = began_again() - began, cpu_s(one.hub)
        seen["hub's memory at its worst, MiB"] = (most_mib(one.hub),)
    return seen


def a_refused_one(nodes: int) -> Seen:
    """All launchers but one have connected; the last is refused, and named on all nodes."""
    with many_nodes(nodes) as one:
        one.say("begin", [0, nodes - 2])
        time.sleep(1.0 + nodes / 1000)
        ended = one.until("end", but=range(nodes - 1, nodes))
        (figures,) = timed(one.hub, lambda: one.say("begin", [nodes - 1, nodes], 0), ended)
    return {"one refused: all ended": figures}


def a_lost_one(nodes: int) -> Seen:
    """Kill one launcher of a launch without restarts, and time the end of the others."""
    with many_nodes(nodes) as one:
        told = one.until("start")
        one.say("begin", [0, nodes])
        told()
        ended = one.until("end", but=range(1))
        (figures,) = timed(one.hub, lambda: one.say("lose", [0, 0], 0.0, False), ended)
    return {"one lost: all ended": figures}


def seen(nodes: int) -> Seen:
    return {**a_life(nodes), **a_refused_one(nodes), **a_lost_one(nodes)}


def have_files(nodes: int) -> None:
    """Allow a connection for each node. Raises SystemExit where so many files are not allowed."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = nodes + nodes // 4 + OWN_FILES
    if most != resource.RLIM_INFINITY and most < needed:
        print(
            f"benchmarks.multinode: {nodes} nodes need {needed} open files, and {most} are "
            f"allowed; use fewer --nodes, or raise the limit: ulimit -n {needed}", file=sys.stderr,
        )  # fmt: skip
        raise SystemExit(2)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def measure(options: Namespace) -> Section:
    """Measure all sizes, each in a column of the table."""
    sizes = (options.nodes,) if options.nodes else SIZES
    have_files(max(sizes))
    columns: dict[int, list[Seen]] = {size: [] for size in sizes}
    for number in range(options.rounds):
        for size in sizes:
            columns[size].append(seen(size))
            print(f"round {number + 1}: {size} nodes", file=sys.stderr, flush=True)
    rows: list[list[str | Times]] = []
    for what in columns[sizes[0]][0]:
        row: list[str | Times] = [what]
        for size in sizes:
            figures = [each[what] for each in columns[size]]
            shown = report.shown(cell([figure[0] for figure in figures]))
            cpu = [figure[1] for figure in figures if len(figure) > 1]
            row.append(f"{shown} ({report.short(median(cpu))})" if cpu else shown)
        rows.append(row)
    goals = [
        goal_of_value(
            f"{what}, {size:,} nodes, s", [each[what][0] for each in columns[size]], most_s
        )
        for size in sizes
        if size == FRONTIER
        for what, most_s in GOALS_S.items()
    ]
    return Section(
        "multinode",
        "Launchers of many nodes",
        f"""One hub and so many launchers without workers, in {PROCESSES} processes on loopback,
        which share this machine's CPUs with it. In s, and in brackets the seconds of CPU that the
        hub itself has used for it; rounds: {options.rounds}.""",
        ["", *(f"{size:,}" for size in sizes)],
        rows,
        goals,
        keeps_times=True,
    )


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, metavar="N", help="launchers; default: a table")


if __name__ == "__main__":
    report.main("multinode", __doc__, measure, ROUNDS, add_flags)

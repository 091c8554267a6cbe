"""Launchers of several nodes in a world of generated faults; the rules are the real ones.

One seed is one schedule: how many nodes, which settings, when what breaks. Time is virtual. Hub and
nodes are told what happens, and what they call is done here: connections that delay, repeat, break
or are cut, processes that die or are frozen, clocks that run apart or jump. Several events may come
before the rules look at them. `promises` has what must hold.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from spawnlaunch.multinode.hub import ENDED, NEAR_S, Hub
from spawnlaunch.multinode.messages import RUN, UNABLE, Order, Report, Where
from spawnlaunch.multinode.node import Node
from spawnlaunch.outcome.failures import LOST, Cause, Failure
from tests.multinode.faults import Faults, plan
from tests.multinode.promises import Broken, Fact, Promises

LONGEST_S = 6000.0
MOST_EVENTS = 10_000  # for each node
LAST_S = 10.0  # for launchers to read that the launch has ended


class Connection:
    """Two ends, which may differ in whether they know that it has ended."""

    def __init__(self, host: Host, number: int) -> None:
        self.host, self.number = host, number
        self.is_open = {"down": True, "up": True}  # at the node, at the hub
        self.latest = {"down": 0.0, "up": 0.0}  # when the last message arrives


class Workers:
    """The workers of one node in one epoch."""

    def __init__(self, order: Order, hubs: int) -> None:
        self.order, self.world = order, (hubs, order.epoch)
        self.is_stopped = self.has_failed = False
        self.ends_at: float | None = None
        self.tell: Callable[[], None] = lambda: None  # of a failure that the launcher has not seen
        self.seen_at: float | None = None  # when they were told to end


class Host:
    """A node: its launcher, which may have the hub, and its workers."""

    def __init__(self, sim: Simulation, number: int) -> None:
        self.sim, self.number, self.name = sim, number, f"node{number}"
        random = sim.random
        self.nproc, self.role = random.randint(1, 3), "ps" if number % 3 == 1 else "default"
        self.rate, self.offset = random.uniform(0.99, 1.01), random.uniform(0, 1e5)
        self.node: Node | None = None
        self.hub: Hub | None = None
        self.connection: Connection | None = None
        self.workers: Workers | None = None
        self.frozen_until, self.is_stuck, self.has_power = 0.0, False, True
        self.is_unable = self.is_restarted = False
        self.starts = self.life = 0  # life grows when the launcher ends
        self.cuts: list[tuple[float, float]] = []
        self.exit_: tuple[int, Cause | None] | None = None
        self.is_dirty = False
        self.wakes_at = float("inf")
        self.signal_after: float | None = None
        self.started_at = 0.0

    @property
    def now(self) -> float:
        return self.offset + self.rate * self.sim.now

    def cut_until(self) -> float:
        """Until when it does not reach the hub's; 0: it does."""
        cuts = (*self.cuts, *self.sim.hosts[0].cuts) if self.number else ()
        return max((b for a, b in cuts if a <= self.sim.now < b), default=0.0)

    # What the rules of the node call

    def connect(self) -> None:
        self.sim.connect(self)

    def say(self, report: Report | None) -> None:
        if self.connection:
            self.sim.send(self.connection, "up", report)

    def close(self) -> None:
        if self.connection:
            self.sim.close(self.connection, "down")

    def launch(self, order: Order) -> None:
        self.sim.launched(self, order)

    def halt(self, _: Cause, grace_s: float) -> None:
        self.sim.halted(self, grace_s)

    def show_stacks(self) -> None:
        where = (Where(self.name, "", ()),)
        self.sim.later(self.sim.random.uniform(0, 5), self, lambda node: node.show(where))

    def tell(self, line: str) -> None:
        self.sim.say(f"{self.name}: {line}")

    def exit(self, status: int, cause: Cause | None) -> None:
        self.exit_ = (status, cause)
        self.sim.promises.exited(self, status, cause)
        self.node = None
        is_restarted = self.sim.settings.is_restarted and self.starts < 4
        if status == LOST and is_restarted and cause and cause.kind == "lost":
            self.sim.faults.comes_back(self, self.sim.random.uniform(1, 5), is_sure=True)
        if not (self.hub and self.hub.phase == ENDED):
            self.sim.end(self)


class Net:
    """What the rules of the hub call."""

    def __init__(self, sim: Simulation) -> None:
        self.sim, self.connections, self.place = sim, dict[int, Connection](), "node0"

    def say(self, conn: int, order: Order) -> None:
        if conn in self.connections:
            self.sim.send(self.connections[conn], "down", order)

    def dismiss(self, conn: int) -> None:
        if conn in self.connections:
            self.sim.close(self.connections[conn], "up")

    def shut(self) -> None: ...

    def tell(self, line: str) -> None:
        self.sim.say(f"hub: {line}")

    tell_once = tell

    def line_again(self, rank: int, nproc: int) -> str:
        return f"<{rank} {nproc}>"

    def compare(self, reports: Any) -> None:
        self.sim.promises.compared(self.sim.hub, reports)


class Simulation:
    """One schedule, from its seed."""

    def __init__(
        self, seed: int, trace: Callable[[str], None] | None = None, nodes: int | None = None
    ) -> None:
        self.seed, self.random, self.trace = seed, Random(seed), trace
        self.now, self.events = 0.0, 0
        self.queue: list[tuple[float, int, Callable[[], None]]] = []
        self.order, self.ports = itertools.count(), itertools.count(20000)
        self.settings, self.has_ranks, count = plan(self.random, nodes)
        self.hosts = [Host(self, n) for n in range(count)]
        self.net = Net(self)
        self.is_slow = self.random.random() < 0.1  # up to a second for a message
        self.lasts: dict[int, float] = {}
        self.seen: Counter[str] = Counter()
        self.promises = Promises(self)
        self.faults = Faults(self)

    @property
    def hub(self) -> Hub | None:
        return self.hosts[0].hub

    # Time

    def at(self, after: float, call: Callable[[], None]) -> None:
        heapq.heappush(self.queue, (self.now + after, next(self.order), call))

    def thawed(self, host: Host, call: Callable[[], None]) -> bool:
        """Whether a host is not frozen; else the call comes once it is not, in its order."""
        if host.frozen_until > self.now:
            heapq.heappush(self.queue, (host.frozen_until, next(self.order), call))
        return host.frozen_until <= self.now

    def say(self, text: str) -> None:
        if self.trace:
            self.trace(f"{self.now:10.4f}  {text}")

    def later(self, after: float, host: Host, call: Callable[[Node], None]) -> None:
        """Tell the node's rules of something, unless its launcher has ended until then."""
        life = host.life

        def happens() -> None:
            if host.life == life and host.node and self.thawed(host, happens):
                call(host.node)
                self.look(host)

        self.at(after, happens)

    def look(self, host: Host) -> None:
        """Let the rules of a host look at what is new, soon: more may come until then."""
        if not host.is_dirty:
            host.is_dirty = True
            life = host.life
            self.at(self.random.uniform(0, 0.003), lambda: self.reconcile(host, life))

    def reconcile(self, host: Host, life: int) -> None:
        if host.life != life or not self.thawed(host, lambda: self.reconcile(host, life)):
            return
        host.is_dirty = False
        dues = []
        if host.hub:
            before = host.hub.phase, host.hub.epoch, len(host.hub.again)
            dues.append(host.hub.reconcile(host.now))
            self.promises.after_hub(host.hub, *before)
            if host.hub.phase == ENDED and before[0] != ENDED:
                self.at(LAST_S, lambda: self.end(host) if host.life == life else None)
            if host.hub.epoch == 1 and before[1] == 0 and self.settings.timeout_s:
                self.at(self.settings.timeout_s, self.time_out)
        if host.node:
            before_state = host.node.report.state, host.node.stage
            dues.append(host.node.reconcile(host.now))
            if host.node:
                after = host.node.report.state, host.node.stage
                self.seen[f"node is {' '.join(after)}"] += 1
                if after != before_state:
                    self.say(f"{host.name}: {before_state} -> {after}")
        if host.hub and host.hub.is_over and not host.node and not self.net.connections:
            self.end(host)
        elif dues and host.life == life:
            after_s = max(0.001, (min(dues) - host.now) / host.rate)
            host.wakes_at = self.now + after_s
            wakes_at = host.wakes_at

            def wakes() -> None:
                if host.life == life and host.wakes_at == wakes_at:
                    self.look(host)

            self.at(after_s, wakes)

    def time_out(self) -> None:
        if self.hub:
            self.hub.is_out_of_time = True
            self.look(self.hosts[0])

    def run(self) -> None:
        for host in self.hosts:
            come = (0.0, self.random.uniform(0, 3), self.random.uniform(0, 30))
            self.at(self.random.choice(come), lambda host=host: self.start(host))  # type: ignore[misc]
        self.faults.schedule()
        while self.queue:
            self.now, _, call = heapq.heappop(self.queue)
            self.events += 1
            if self.now > LONGEST_S or self.events > MOST_EVENTS * len(self.hosts):
                states = [host.node and (host.node.stage, host.node.report) for host in self.hosts]
                phase = self.hub and self.hub.phase
                raise Broken(f"no end: {self.now:.0f} s, {self.events} events, {phase}, {states}")
            call()
            are_gone = all(h.is_stuck or (not h.node and h.starts) for h in self.hosts)
            if are_gone and (not self.hub or self.hosts[0].is_stuck) and not self.faults.pending:
                break
        self.promises.at_the_end()

    # Launchers

    def start(self, host: Host) -> None:
        """The launcher of a host starts; on the first host it has the hub."""
        if host.node or host.hub or not host.has_power:
            return
        host.starts += 1
        host.life += 1
        host.started_at = self.now
        host.exit_, host.connection, host.workers, host.is_dirty = None, None, None, False
        host.frozen_until = 0.0
        self.say(f"{host.name}: launcher starts")
        self.promises.starts(host)
        unable = Cause("unable", host.name, code=2, words="no script") if host.is_unable else None
        if host.is_unable and host.number == 0 and host.is_restarted:
            return  # it is started again, and nobody is told
        if host.number == 0:
            self.net = Net(self)
            host.hub = Hub(self.settings, self.net, host.now)
            if unable:
                host.hub.end_unmet(unable)
                self.look(host)
                self.at(LAST_S + 1, lambda: self.end(host))
                host.exit_ = (2, unable)
                return
        report = Report(
            host.name,
            f"{host.name}.{host.starts}",
            host.nproc,
            host.number if self.has_ranks else -1,
            next(self.ports),
            role=host.role,
            flags=self.settings.flags,
            is_restarted=host.is_restarted or self.settings.is_restarted,
            state=UNABLE if unable else "ready",
            cause=unable,
        )
        join_s = NEAR_S if unable else self.settings.join_s
        host.node = Node(report, join_s, self.settings.beat_s, 60.0, host, host, host.now)
        self.look(host)
        if host.signal_after is not None:
            self.at(host.signal_after, lambda: self.faults.signalled(host))
            host.signal_after = None

    def end(self, host: Host) -> None:
        """Its processes are no more."""
        host.node = None
        host.life += 1
        host.is_dirty = False
        if host.hub:
            host.hub = None
            for connection in list(self.net.connections.values()):
                self.close(connection, "up")
        if host.connection:
            self.close(host.connection, "down")

    # The network

    def delay(self) -> float:
        return self.random.uniform(0.0001, 1.0 if self.is_slow else 0.02)

    def connect(self, host: Host) -> None:
        """It takes a while to be there, or to fail."""

        def reached(_: Node) -> None:
            is_cut, hub_host = host.cut_until() > 0, self.hosts[0]
            if is_cut or not hub_host.hub or not hub_host.has_power:
                is_nobody = not is_cut and hub_host.has_power
                after = 0.001 if is_nobody else 5.0
                self.later(after, host, lambda n: n.unlinked(host.now, "no", is_nobody=is_nobody))
                return
            connection = Connection(host, next(self.order))
            host.connection = self.net.connections[connection.number] = connection
            assert host.node
            self.promises.returned.add(host.number)
            host.node.linked(host.now)

        self.later(self.delay(), host, reached)

    def send(self, connection: Connection, way: str, message: Any) -> None:
        """A message arrives after all that were sent that way before it; or never; or twice."""
        self.seen[f"sent {way} {message.action if way == 'down' and message else ''}"] += 1
        for _ in range(2 if self.random.random() < self.faults.doubled else 1):
            self.deliver(connection, way, lambda: self.arrive(connection, way, message))

    def deliver(self, connection: Connection, way: str, call: Callable[[], None]) -> None:
        when = max(self.now + self.delay(), connection.latest[way] + 1e-6)
        connection.latest[way] = when

        def arrives() -> None:
            until = connection.host.cut_until()
            if until:  # TCP sends it again, until the cut is over
                later = max(until + 0.2, connection.latest[way] + 1e-6)
                connection.latest[way] = later
                self.at(later - self.now, call)
            else:
                call()

        self.at(when - self.now, arrives)

    def arrive(self, connection: Connection, way: str, message: Any) -> None:
        host, hub_host = connection.host, self.hosts[0]
        is_here = connection is self.net.connections.get(connection.number)
        target = host if way == "down" else hub_host
        if not connection.is_open[way] or (way == "up" and not (is_here and self.hub)):
            return
        if not self.thawed(target, lambda: self.arrive(connection, way, message)):
            return
        if way == "down":
            if host.node and host.connection is connection:
                host.node.heard(message, host.now)
                self.look(host)
        else:
            assert self.hub
            now = hub_host.now
            self.hub.hear(connection.number, now)
            if message is None:
                self.send(connection, "down", None)
                return
            self.promises.comes(host, message)
            addr, is_local = f"10.0.0.{host.number}", host.number == 0
            self.hub.take(connection.number, message, addr, is_local, now)
            self.look(hub_host)

    def close(self, connection: Connection, end: str) -> None:
        """One end closes ("down": the node's, "up": the hub's): its kernel says so to the other."""
        self.forget(connection, end)
        other = "up" if end == "down" else "down"
        if connection.is_open[end]:
            connection.is_open[end] = False
            self.deliver(connection, other, lambda: self.lost(connection, other, True))

    def forget(self, connection: Connection, end: str) -> None:
        if end == "up":
            self.net.connections.pop(connection.number, None)
        elif connection.host.connection is connection:
            connection.host.connection = None

    def lost(self, connection: Connection, end: str, is_certain: bool) -> None:
        """One end learns that the connection has ended."""
        host, hub_host = connection.host, self.hosts[0]
        target = host if end == "down" else hub_host
        again = partial(self.lost, connection, end, is_certain)
        if not connection.is_open[end] or not self.thawed(target, again):
            return
        connection.is_open[end] = False
        if end == "up":
            is_known = connection.number in self.net.connections
            self.forget(connection, end)
            if self.hub and is_known:
                self.say(f"hub: lost {host.name}, certain: {is_certain}")
                self.promises.goes(host, connection.number, is_certain)
                self.hub.lose(connection.number, is_certain, hub_host.now)
                self.look(hub_host)
        elif host.connection is connection:
            self.forget(connection, end)
            if host.node:
                self.say(f"{host.name}: lost the hub")
                host.node.unlinked(host.now, "lost")
                self.look(host)

    # Workers

    def launched(self, host: Host, order: Order) -> None:
        assert order.action == RUN
        self.promises.launched(host, order)
        host.workers = workers = Workers(order, self.promises.hubs)
        lasts = self.lasts.setdefault(order.epoch, self.random.uniform(2, 50))
        self.at(lasts + self.random.uniform(0, 3), lambda: self.ended(host, workers, True))

    def halted(self, host: Host, grace_s: float) -> None:
        workers = host.workers
        if workers is None:
            return
        workers.is_stopped, workers.seen_at = True, workers.seen_at or self.now
        takes = self.random.choice((0.0, 0.01, 1.0)) * grace_s + self.random.uniform(0, 0.05)
        if workers.ends_at is None or self.now + takes < workers.ends_at:
            workers.ends_at = self.now + takes
            self.at(takes, lambda: self.ended(host, workers, False))

    def ended(self, host: Host, workers: Workers, is_well: bool) -> None:
        """All workers of a host have ended; a little later the launcher is ready for others."""
        if host.workers is not workers or (is_well and (workers.is_stopped or workers.has_failed)):
            return
        workers.tell()
        host.workers = None
        first = workers.order.first_rank
        ends = tuple((first + n, 0 if is_well else -15) for n in range(host.nproc))
        port = next(self.ports)
        takes = self.random.choice((0.0, self.random.uniform(0, 1)))
        self.later(takes, host, lambda node: node.ended(is_well, port, ends))

    def killed(self, host: Host, after: float) -> None:
        """The kernel kills the workers of a launcher that is no more."""
        workers = host.workers

        def die() -> None:
            if host.workers is workers:
                host.workers = None

        if after:
            self.at(after, die)
        else:
            die()

    def worker_fails(self, host: Host, code: int, is_victim: bool = False) -> None:
        workers = host.workers
        if workers is None or workers.is_stopped or workers.has_failed:
            return
        workers.has_failed = True
        rank = workers.order.first_rank + self.random.randrange(host.nproc)
        dies_s = self.random.choice((0.0, self.random.uniform(0, 2)))
        self.say(f"FAULT {host.name}: rank {rank} fails, {code}, {is_victim}, dies {dies_s:.3f}")
        fact = Fact(self.now, host.number, rank, code, is_victim)
        if is_victim and (code != -6 or self.random.random() < 0.5):
            fact.words = "Connection closed by peer"
        is_written = code > 0 and self.random.random() < 0.5  # to the error file
        self.promises.failures.setdefault(workers.order.epoch, []).append(fact)
        life, began = host.life, self.now - 1.0

        def tell() -> None:
            workers.tell = lambda: None
            if host.workers is workers and host.life == life:
                fact.was_dying = workers.seen_at is not None and not is_written
                seen_at = self.now if workers.seen_at is None else workers.seen_at
                fact.known = fact.when if is_written else seen_at
                early_s = fact.known - began if fact.was_dying else 0.0
                cause = Cause("failure", host.name, rank, code, fact.words, pid=1)
                self.halted(host, self.settings.failure_grace_s)
                when = host.now - (self.now - fact.known) * host.rate
                self.later(0.0, host, lambda n: n.failed(Failure(cause, when, early_s)))

        workers.tell = tell
        self.at(dies_s, lambda: workers.tell())
        if not is_victim and self.random.random() < 0.5:
            for other in self.hosts:
                theirs = other.workers
                if other is not host and theirs and theirs.world == workers.world:
                    after, its = self.random.uniform(0.001, 0.5), self.random.choice((1, -6))
                    self.at(after, lambda o=other, c=its: self.worker_fails(o, c, True))  # type: ignore[misc]

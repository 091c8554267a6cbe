"""Launchers of several nodes in a world of generated faults; the rules are the real ones.

One seed is one schedule: how many nodes, which settings, when what breaks. Time is virtual. The
hub and the members are called through `step`, and what they want done is done here: connections
that delay, break or are cut, processes that die or are frozen, clocks that run apart or jump.

What must hold is checked while it runs (`Broken` is raised):

    agree     every world that starts is one that all of its nodes were told alike, once
    alone     no workers of two worlds run at once (but on a node whose launcher is frozen)
    first     the failure that is reported was the first, as far as clocks can tell
    one end   nodes that had no fault of their own end with one status and one cause
    nothing left   no launcher ends before its workers
    budget    there are no more restarts than are allowed
    stale     what is said of an earlier epoch changes nothing
    an end    everybody ends, in bounded time and after a bounded number of events
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable
from random import Random
from types import ModuleType
from typing import Any

from spawnlaunch.gang import hub as real_hub
from spawnlaunch.gang import hub_records as h
from spawnlaunch.gang import member as real_member
from spawnlaunch.gang import member_records as m
from spawnlaunch.gang import messages
from spawnlaunch.gang.messages import Cause, Hello, Start, Welcome
from spawnlaunch.gang.settings import Settings
from tests.gang.faults import Faults, plan
from tests.gang.world import Worlds

LONGEST_S = 6000.0
MOST_EVENTS = 60_000


class Broken(AssertionError):
    """Something that must always hold did not."""


class Connection:
    """Two ends, which may differ in whether they know that it has ended."""

    def __init__(self, host: Host, hub: HubProcess) -> None:
        self.host = host
        self.hub = hub
        self.is_greeted = False  # the hub has had a hello on it
        self.open_here, self.open_there = True, True  # at the member, at the hub
        self.latest = {"up": 0.0, "down": 0.0}  # when the last message arrives


class HubProcess:
    """A hub, from the start of its launcher to its end."""

    def __init__(self, number: int, state: h.Hub) -> None:
        self.number = number
        self.state = state
        self.alive = True
        self.connections: dict[int, Connection] = {}
        self.tick = 0


class Workers:
    """The workers of one node in one epoch."""

    def __init__(self, world: tuple[int, int]) -> None:
        self.world = world
        self.ends: float | None = None  # when they will, once told
        self.told = False
        self.failed = False
        self.tell: Callable[[], None] = lambda: None  # of a failure that the launcher has not seen


class Host:
    """A node: its launcher, which is a member and may have the hub, and its workers."""

    def __init__(self, number: int, random: Random) -> None:
        self.number = number
        self.name = f"node{number}"
        self.boots = 0
        self.starts = 0
        self.came = 0.0
        self.nproc = random.randint(1, 3)
        self.rate = random.uniform(0.99, 1.01)
        self.offset = random.uniform(0, 1e5)
        self.member: m.Member | None = None
        self.connection: Connection | None = None
        self.workers: Workers | None = None
        self.frozen_until = 0.0
        self.is_stuck = False  # frozen for good
        self.cuts: list[tuple[float, float]] = []
        self.tick = 0
        self.port = 0
        self.exit: tuple[int, Cause | None] | None = None
        self.life = 0  # grows when the launcher ends
        self.powered = True

    def is_cut(self, at: float) -> float:
        """Until when it is."""
        return max((b for a, b in self.cuts if a <= at < b), default=0.0)


class Simulation:
    """One schedule, from its seed."""

    def __init__(
        self,
        seed: int,
        hub: ModuleType = real_hub,
        member: ModuleType = real_member,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.random = Random(seed)
        self.hub_rules, self.member_rules = hub, member
        self.trace = trace
        self.now = 0.0
        self.events = 0
        self.queue: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.numbers = itertools.count(1)
        self.ports = itertools.count(20000)
        self.settings, self.given, count = plan(self.random)
        self.hosts = [Host(n, self.random) for n in range(count)]
        self.hub: HubProcess | None = None
        self.hubs = 0
        self.ended: float | None = None  # when the last hub ended
        self.seen: Counter[str] = Counter()
        self.slow = self.random.random() < 0.1
        self.worlds = Worlds(self)
        self.faults = Faults(self)
        self.said: list[tuple[Connection, str, Any]] = []

    # Time

    def at(self, after: float, call: Callable[[], None]) -> None:
        heapq.heappush(self.queue, (self.now + after, next(self.order), call))

    def on_waking(self, host: Host, call: Callable[[], None]) -> None:
        """In the order in which it came."""
        heapq.heappush(self.queue, (host.frozen_until, next(self.order), call))

    def say(self, text: str) -> None:
        if self.trace:
            self.trace(f"{self.now:10.4f}  {text}")

    def clock(self, host: Host) -> float:
        return host.offset + host.rate * self.now

    def delay(self) -> float:
        return self.random.uniform(0.0001, 1.0 if self.slow else 0.02)

    def run(self) -> None:
        for host in self.hosts:
            arrival = self.random.choice(
                (0.0, self.random.uniform(0, 3), self.random.uniform(0, 30))
            )
            self.at(arrival, lambda host=host: self.start(host))  # type: ignore[misc]
        self.faults.schedule()
        while self.queue:
            self.now, _, call = heapq.heappop(self.queue)
            self.events += 1
            if self.now > LONGEST_S or self.events > MOST_EVENTS:
                raise Broken(f"no end: {self.now:.0f} s, {self.events} events, {self.state()}")
            call()
            are_gone = all(h.is_stuck or (h.member is None and h.starts) for h in self.hosts)
            if are_gone and (not self.hub or self.hosts[0].is_stuck) and not self.faults.pending:
                break
        self.worlds.at_the_end()

    def state(self) -> str:
        members = [host.member.state if host.member else "-" for host in self.hosts]
        return f"members {members}, hub {self.hub and self.hub.state.phase}"

    # Launchers

    def start(self, host: Host) -> None:
        """The launcher of a host starts; on the first host it has the hub."""
        if host.member is not None or not host.powered:
            return
        host.starts += 1
        host.came = self.now
        self.say(f"{host.name}: launcher starts")
        host.exit = None
        host.connection, host.workers = None, None
        host.frozen_until = 0.0
        host.port = next(self.ports)
        if host.number == 0:
            self.hubs += 1
            state = h.Hub(self.settings, since=self.clock(host), told=self.clock(host))
            self.hub = HubProcess(self.hubs, state)
            self.step_hub(h.Tick())
        hello = Hello(
            version=messages.VERSION,
            host=host.name,
            who=f"{host.name}.{host.starts}",
            nproc=host.nproc,
            boot=f"{host.boots}",
            rank=host.number if self.given else -1,
            port=host.port,
        )
        host.member = m.Member(hello, join_s=self.settings.join_s)
        self.step_member(host, m.Tick())

    def end(self, host: Host) -> None:
        """Its processes are no more."""
        host.member = None
        host.life += 1
        if host.number == 0 and self.hub:
            self.hub.alive = False
            self.ended = self.now
            for connection in list(self.hub.connections.values()):
                self.close_there(connection)
            self.hub = None
        if host.connection:
            self.close_here(host.connection)

    # Steps

    def step_hub(self, event: Any) -> None:
        hub, host = self.hub, self.hosts[0]
        if hub is None:
            return
        if host.frozen_until > self.now:
            self.on_waking(host, lambda: self.step_hub(event) if hub is self.hub else None)
            return
        before = hub.state
        hub.state, actions = self.hub_rules.step(hub.state, event, self.clock(host))
        self.seen[f"hub {before.phase} {_name(event)}"] += 1
        self.worlds.after_hub(before, hub.state)
        self.act_hub(hub, actions)
        hub.tick += 1
        tick = hub.tick
        if hub.state.phase == h.ENDED and before.phase != h.ENDED:
            self.say(f"hub: ended with {hub.state.status}, {hub.state.cause}")
            self.at(20.0, lambda: self.end(host) if self.hub is hub else None)
        is_over = hub is self.hub and hub.state.phase == h.ENDED and not hub.connections
        if is_over and (host.member is None or host.exit):
            self.end(host)
            return
        wait = self.hub_rules.due(hub.state, self.clock(host)) / host.rate
        if hub.state.phase != h.ENDED:
            self.at(wait + 1e-6, lambda: self.step_hub(h.Tick()) if hub.tick == tick else None)

    def act_hub(self, hub: HubProcess, actions: list[Any]) -> None:
        starts = [a for a in actions if isinstance(a, h.Say) and isinstance(a.message, Start)]
        if starts:
            self.worlds.begun(hub, [(hub.connections.get(a.conn), a.message) for a in starts])
        for action in actions:
            match action:
                case h.Say(conn, message):
                    connection = hub.connections.get(conn)
                    if connection:
                        self.send(connection, "down", message)
                case h.Close(conn):
                    if conn in hub.connections:
                        self.close_there(hub.connections[conn])
                case h.Note(kind):
                    self.seen[f"hub note {kind}"] += 1
                    if kind == "again":
                        self.worlds.again(hub.state, *action.about)
                    self.say(f"hub: {action}")

    def step_member(self, host: Host, event: Any, over: Connection | None = None) -> None:
        """A start that was read together with the end of its connection is not heard."""
        if host.member is None:
            return
        if over and not over.open_here and isinstance(event.message, Start):
            return
        if host.frozen_until > self.now:
            life = host.life
            is_same = lambda: host.life == life  # noqa: E731
            self.on_waking(host, lambda: self.step_member(host, event, over) if is_same() else None)
            return
        before = host.member
        host.member, actions = self.member_rules.step(host.member, event, self.clock(host))
        self.seen[f"member {before.state} {_name(event)}"] += 1
        if before.state != host.member.state:
            self.say(f"{host.name}: {before.state} -> {host.member.state} by {event}")
        for action in actions:
            self.act_member(host, action)
        host.tick += 1
        tick, life = host.tick, host.life
        if host.member is not None:
            wait = self.member_rules.due(host.member, self.clock(host)) / host.rate
            is_mine = lambda: host.tick == tick and host.life == life  # noqa: E731
            self.at(wait + 1e-6, lambda: self.step_member(host, m.Tick()) if is_mine() else None)

    def act_member(self, host: Host, action: Any) -> None:
        match action:
            case m.Connect():
                self.connect(host)
            case m.Disconnect():
                if host.connection:
                    self.close_here(host.connection)
            case m.Say(message):
                if host.connection:
                    self.send(host.connection, "up", message)
            case m.Exit(status, cause):
                self.exit(host, status, cause)
            case _:
                self.act_workers(host, action)

    def act_workers(self, host: Host, action: Any) -> None:
        match action:
            case m.Launch(start):
                self.worlds.launched(host, start)
            case m.Halt(_, grace_s):
                self.worlds.halted(host, grace_s)
            case m.ShowStacks():
                life = host.life
                self.at(
                    self.random.uniform(0, 5), lambda: self.of_life(host, life, m.StacksShown())
                )

    def exit(self, host: Host, status: int, cause: Cause | None) -> None:
        """Its launcher ends; one that has the hub waits until all others have heard the end."""
        self.worlds.exited(host, status, cause)
        if host.number == 0 and self.hub and self.hub.state.phase == h.ENDED:
            host.member = None
            host.life += 1
            if not self.hub.connections:
                self.end(host)
        else:
            self.end(host)

    def of_life(self, host: Host, life: int, event: Any) -> None:
        if host.life == life:
            self.step_member(host, event)

    # Connections

    def connect(self, host: Host) -> None:
        """It takes a while to be there, or to fail."""
        life = host.life

        def reached() -> None:
            if host.life != life or host.member is None:
                return
            hub = self.hub
            cut = host.is_cut(self.now) or self.hosts[0].is_cut(self.now)
            if (cut and host.number) or hub is None or not hub.alive or not self.hosts[0].powered:
                self.at(5.0 if cut else 0.001, lambda: self.of_life(host, life, m.Unlinked("no")))
                return
            connection = Connection(host, hub)
            number = next(self.numbers)
            hub.connections[number] = connection
            host.connection = connection
            self.step_member(host, m.Linked())

        self.at(self.delay(), reached)

    def number_of(self, connection: Connection) -> int | None:
        found = (n for n, c in connection.hub.connections.items() if c is connection)
        return next(found, None)

    def send(self, connection: Connection, way: str, message: Any) -> None:
        """A message arrives after all that were sent that way before it; or never."""
        self.seen[f"message {_name(message)}"] += 1
        self.deliver(connection, way, lambda: self.arrive(connection, way, message))
        if self.random.random() < self.faults.doubled:
            self.deliver(connection, way, lambda: self.arrive(connection, way, message))
        self.said.append((connection, way, message))

    def deliver(self, connection: Connection, way: str, call: Callable[[], None]) -> None:
        when = max(self.now + self.delay(), connection.latest[way] + 1e-6)
        connection.latest[way] = when

        def arrives() -> None:
            host = connection.host
            until = max(host.is_cut(self.now), self.hosts[0].is_cut(self.now)) if host.number else 0
            if until > self.now:  # TCP sends it again, until the cut is over
                later = max(until + 0.2, connection.latest[way] + 1e-6)
                connection.latest[way] = later
                self.at(later - self.now, call)
            else:
                call()

        self.at(when - self.now, arrives)

    def arrive(self, connection: Connection, way: str, message: Any) -> None:
        if way == "down":
            if connection.open_here and connection.host.connection is connection:
                self.worlds.before_member_hears(connection.host, message)
                self.step_member(connection.host, m.Heard(message), connection)
            return
        number = self.number_of(connection)
        if connection.open_there and connection.hub is self.hub and number is not None:
            if isinstance(message, Hello):
                addr = f"10.0.0.{connection.host.number}"
                local = connection.host.number == 0
                if not connection.is_greeted:
                    connection.is_greeted = True
                    self.step_hub(h.Came(number, message, addr, local))
            else:
                self.worlds.before_hub_hears(number, message)
                self.step_hub(h.Heard(number, message))

    def close_here(self, connection: Connection) -> None:
        """The member's end closes: its kernel says so to the hub."""
        if connection.host.connection is connection:
            connection.host.connection = None
        if connection.open_here:
            connection.open_here = False
            self.deliver(connection, "up", lambda: self.lost_there(connection, True))

    def close_there(self, connection: Connection) -> None:
        number = self.number_of(connection)
        if number is not None:
            del connection.hub.connections[number]
        if connection.open_there:
            connection.open_there = False
            self.deliver(connection, "down", lambda: self.lost_here(connection))

    def lost_there(self, connection: Connection, certain: bool) -> None:
        """The hub learns that the connection has ended."""
        number = self.number_of(connection)
        if number is None or not connection.open_there:
            return
        connection.open_there = False
        del connection.hub.connections[number]
        if connection.hub is self.hub:
            self.say(f"hub: lost {connection.host.name}, certain: {certain}")
            self.step_hub(h.Gone(number, certain))

    def lost_here(self, connection: Connection) -> None:
        """The member learns it."""
        if not connection.open_here:
            return
        connection.open_here = False
        if connection.host.connection is connection:
            connection.host.connection = None
            self.say(f"{connection.host.name}: lost the hub")
            self.step_member(connection.host, m.Unlinked("lost"))


def _name(record: Any) -> str:
    name = type(record).__name__
    return f"{name} {type(record.message).__name__}" if name == "Heard" else name


__all__ = ["Broken", "Host", "Settings", "Simulation", "Welcome"]

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
from spawnlaunch.gang.messages import Cause, Hello, Start
from tests.gang.faults import Faults, plan
from tests.gang.hosts import Broken, Connection, Host, HubProcess, name_of
from tests.gang.network import Network
from tests.gang.world import Worlds

LONGEST_S = 6000.0
MOST_EVENTS = 60_000


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
        self.ports = itertools.count(20000)
        self.settings, self.given, count = plan(self.random)
        self.hosts = [Host(n, self.random) for n in range(count)]
        self.hub: HubProcess | None = None
        self.hubs = 0
        self.began, self.ended = 0.0, 0.0  # the last hub
        self.seen: Counter[str] = Counter()
        self.network = Network(self, slow=self.random.random() < 0.1)
        self.worlds = Worlds(self)
        self.faults = Faults(self)

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
            self.began = self.now
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
            told=(("--grace", f"{host.number}"),),
        )
        host.member = m.Member(hello, join_s=self.settings.join_s)
        self.step_member(host, m.Tick())
        if host.told_after is not None:
            self.at(host.told_after, lambda: self.faults.told(host))
            host.told_after = None

    def end(self, host: Host) -> None:
        """Its processes are no more."""
        host.member = None
        host.life += 1
        if host.number == 0 and self.hub:
            self.hub.alive = False
            self.ended = self.now
            for connection in list(self.hub.connections.values()):
                self.network.close_there(connection)
            self.hub = None
        if host.connection:
            self.network.close_here(host.connection)

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
        self.seen[f"hub {before.phase} {name_of(event)}"] += 1
        self.seen[f"hub is {hub.state.phase}"] += 1
        self.worlds.after_hub(before, hub.state)
        self.act_hub(hub, actions)
        hub.tick += 1
        tick = hub.tick
        if hub.state.phase == h.ENDED and before.phase != h.ENDED:
            self.say(f"hub: ended with {hub.state.status}, {hub.state.cause}")
            self.at(20.0, lambda: self.give_up(hub))
        is_over = self.is_over(hub)
        if is_over and (host.member is None or host.exit):
            self.end(host)
            return
        wait = self.hub_rules.due(hub.state, self.clock(host)) / host.rate
        if hub.state.phase != h.ENDED or hub.state.late > 0:
            self.at(wait + 1e-6, lambda: self.step_hub(h.Tick()) if hub.tick == tick else None)

    def give_up(self, hub: HubProcess) -> None:
        """Some have not heard the end of a hub, which lives no longer."""
        host = self.hosts[0]
        if hub is self.hub and host.frozen_until > self.now:
            self.on_waking(host, lambda: self.give_up(hub))
        elif hub is self.hub:
            self.end(host)

    def is_over(self, hub: HubProcess) -> bool:
        is_over = self.hub_rules.is_over(hub.state, self.clock(self.hosts[0]))
        return hub is self.hub and is_over and not hub.connections

    def act_hub(self, hub: HubProcess, actions: list[Any]) -> None:
        starts = [a for a in actions if isinstance(a, h.Say) and isinstance(a.message, Start)]
        if starts:
            self.worlds.begun(hub, [(hub.connections.get(a.conn), a.message) for a in starts])
        for action in actions:
            match action:
                case h.Say(conn, message):
                    connection = hub.connections.get(conn)
                    if connection:
                        self.network.send(connection, "down", message)
                case h.Close(conn):
                    if conn in hub.connections:
                        self.network.close_there(hub.connections[conn])
                case h.Note(kind):
                    self.seen[f"hub note {kind}"] += 1
                    if kind == "again":
                        self.worlds.again(hub.state, *action.about[:4])
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
        self.seen[f"member {before.state} {name_of(event)}"] += 1
        self.seen[f"member is {host.member.state}"] += 1
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
                self.network.connect(host)
            case m.Disconnect():
                if host.connection:
                    self.network.close_here(host.connection)
            case m.Say(message):
                if host.connection:
                    self.network.send(host.connection, "up", message)
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
            if self.is_over(self.hub):
                self.end(host)
        else:
            self.end(host)

    def of_life(self, host: Host, life: int, event: Any) -> None:
        if host.life == life:
            self.step_member(host, event)

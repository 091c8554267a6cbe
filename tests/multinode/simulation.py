"""Launchers of several nodes in a world of generated faults; the rules are the real ones.

One seed is one schedule: how many nodes, which settings, when what breaks. Time is virtual. The
hub and the members are told what happens, and what they call is done here: connections
that delay, break or are cut, processes that die or are frozen, clocks that run apart or jump.

What must hold is checked while it runs (`Broken` is raised):

    agree     every world that starts is one that all of its nodes were told alike, once
    alone     no workers of two worlds run at once (but on a node whose launcher is frozen)
    first     the failure that is reported was the first, as far as clocks can tell
    one end   nodes that had no fault of their own end with one status and one cause
    nothing left   no launcher ends before its workers
    roll      what nodes say of a hang is compared once, when all have: that of each is its own
    budget    there are no more restarts than are allowed
    count     each start of workers is counted, whichever hub there was before
    stale     what is said of an earlier epoch changes nothing
    no wait   nobody waits for a launcher of which the hub knows that it will not come
    an end    everybody ends, in bounded time and after a bounded number of events
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable
from copy import copy
from random import Random
from typing import Any

from spawnlaunch.multinode import hub, member, messages
from spawnlaunch.multinode.messages import Hello, Start
from spawnlaunch.multinode.phases import ENDED, NEAR_S
from spawnlaunch.outcome.failures import Cause
from tests.multinode.faults import Faults, plan
from tests.multinode.hosts import Broken, Calls, Connection, Host, HubProcess
from tests.multinode.network import Network
from tests.multinode.world import Worlds

LONGEST_S = 6000.0
MOST_EVENTS = 10_000  # for each node


class Simulation:
    """One schedule, from its seed."""

    def __init__(
        self, seed: int, trace: Callable[[str], None] | None = None, nodes: int | None = None
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.trace = trace
        self.now = 0.0
        self.events = 0
        self.queue: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.ports = itertools.count(20000)
        self.settings, self.given, count = plan(self.random, nodes)
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
            if self.now > LONGEST_S or self.events > MOST_EVENTS * len(self.hosts):
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
        if host.is_unable and host.number == 0 and host.is_restarted:
            return  # it is started again, and nobody is told
        if host.number == 0:
            self.hubs += 1
            self.began = self.now
            calls = Calls()
            state = hub.Hub(self.settings, calls, lambda: self.clock(host), calls.wake)
            if host.is_unable:
                state.end_unmet(Cause("unable", host.name, code=2, words="no script"))
            self.hub = HubProcess(self.hubs, state, calls)
            self.step_hub("tick")
        hello = Hello(
            host=host.name,
            launcher_id=f"{host.name}.{host.starts}",
            nproc=host.nproc,
            boot=f"{host.boots}",
            given_node_rank=host.number if self.given else -1,
            port=host.port,
            flags=(("--grace", f"{host.number}"),),
            role=host.role,
            status=2 if host.is_unable else 0,
            words="no script" if host.is_unable else "",
            is_restarted=host.is_restarted,
        )
        join_s = NEAR_S if host.is_unable else self.settings.join_s
        calls = host.calls = Calls()
        host.member = member.Member(
            hello, join_s, calls, calls, lambda: self.clock(host), calls.wake
        )
        self.step_member(host, "begin")
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

    def step_hub(self, what: str, *args: Any) -> None:
        hub, host = self.hub, self.hosts[0]
        if hub is None:
            return
        if host.frozen_until > self.now:
            self.on_waking(host, lambda: self.step_hub(what, *args) if hub is self.hub else None)
            return
        before = copy(hub.state)
        before.restart_causes = [*before.restart_causes]
        hub.calls.taken()
        getattr(hub.state, what)(*args)
        self.seen[f"hub {before.phase} {what}"] += 1
        self.seen[f"hub is {hub.state.phase}"] += 1
        self.worlds.after_hub(before, hub.state)
        calls = hub.calls.taken()
        starts = [args for what, *args in calls if what == "send" and isinstance(args[1], Start)]
        if starts:
            self.worlds.begun(hub, [(hub.connections.get(conn), start) for conn, start in starts])
        for called, *with_what in calls:
            self.do_of_hub(hub, called, *with_what)
        hub.tick += 1
        if hub.state.phase == ENDED and before.phase != ENDED:
            self.say(f"hub: ended with {hub.state.status}, {hub.state.cause}")
            self.at(20.0, lambda: self.give_up(hub))
        if self.is_over(hub) and (host.member is None or host.exit):
            self.end(host)
        else:
            (after_s,) = calls[-1][1:]
            self.wake_hub(hub, after_s)

    def wake_hub(self, hub: HubProcess, after_s: float | None) -> None:
        tick = hub.tick
        if after_s is not None:
            wait = after_s / self.hosts[0].rate
            self.at(wait + 1e-6, lambda: self.step_hub("tick") if hub.tick == tick else None)

    def give_up(self, hub: HubProcess) -> None:
        """Some have not heard the end of a hub, which lives no longer."""
        host = self.hosts[0]
        if hub is self.hub and host.frozen_until > self.now:
            self.on_waking(host, lambda: self.give_up(hub))
        elif hub is self.hub:
            self.end(host)

    def is_over(self, hub: HubProcess) -> bool:
        return hub is self.hub and hub.state.is_over and not hub.connections

    def do_of_hub(self, hub: HubProcess, what: str, *args: Any) -> None:
        if what == "compare":
            self.worlds.compared(hub.state, *args)
            return
        connection = hub.connections.get(args[0]) if args else None
        if what == "send" and connection:
            self.network.send(connection, "down", args[1])
        elif what == "dismiss" and connection:
            self.network.close_there(connection)
        elif what in ("print_line", "print_once"):
            self.say(f"hub: {args[0]}")

    def step_member(
        self, host: Host, what: str, *args: Any, over: Connection | None = None
    ) -> None:
        """A start that was read together with the end of its connection is not heard."""
        if host.member is None:
            return
        if over and not over.open_here and isinstance(args[0], Start):
            return
        if host.frozen_until > self.now:
            life = host.life
            is_same = lambda: host.life == life  # noqa: E731
            self.on_waking(
                host, lambda: self.step_member(host, what, *args, over=over) if is_same() else None
            )
            return
        member, before = host.member, host.member.state
        getattr(member, what)(*args)
        self.seen[f"member {before} {what}"] += 1
        self.seen[f"member is {member.state}"] += 1
        if before != member.state:
            self.say(f"{host.name}: {before} -> {member.state} by {what} {args}")
        for what, *with_what in host.calls.taken():
            self.do_of_member(host, what, *with_what)

    def do_of_member(self, host: Host, what: str, *args: Any) -> None:
        if what == "connect":
            self.network.connect(host)
        elif what == "close" and host.connection:
            self.network.close_here(host.connection)
        elif what == "send" and host.connection:
            self.network.send(host.connection, "up", *args)
        elif what == "launch":
            self.worlds.launched(host, *args)
        elif what == "halt":
            self.worlds.halted(host, *args)
        elif what == "show_stacks":
            life, where = host.life, (messages.Where(host.name, "", ()),)
            after = self.random.uniform(0, 5)
            self.at(after, lambda: self.of_life(host, life, "stacks_shown", where))
        elif what == "exit":
            self.exit(host, *args)
        elif what == "wake" and host.member:
            self.wake(host, *args)

    def wake(self, host: Host, after_s: float) -> None:
        host.tick += 1
        tick, life = host.tick, host.life
        is_mine = lambda: host.tick == tick and host.life == life  # noqa: E731
        wait = after_s / host.rate
        self.at(wait + 1e-6, lambda: self.step_member(host, "tick") if is_mine() else None)

    def exit(self, host: Host, status: int, cause: Cause | None) -> None:
        """Its launcher ends; one that has the hub waits until all others have heard the end."""
        self.worlds.exited(host, status, cause)
        if host.number == 0 and self.hub and self.hub.state.phase == ENDED:
            host.member = None
            host.life += 1
            if self.is_over(self.hub):
                self.end(host)
        else:
            self.end(host)

    def of_life(self, host: Host, life: int, what: str, *args: Any) -> None:
        if host.life == life:
            self.step_member(host, what, *args)

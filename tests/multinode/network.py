"""The network of a simulation: connections that delay, repeat, break, and know it at either end."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spawnlaunch.multinode.messages import Hello
from tests.multinode.hosts import Connection, Host

if TYPE_CHECKING:
    from tests.multinode.simulation import Simulation


class Network:
    """Carries what the launchers of a simulation say."""

    def __init__(self, simulation: Simulation, slow: bool) -> None:
        self.sim = simulation
        self.random = simulation.random
        self.numbers = itertools.count(1)
        self.slow = slow  # up to a second for a message
        self.said: list[tuple[Connection, str, Any]] = []

    def delay(self) -> float:
        return self.random.uniform(0.0001, 1.0 if self.slow else 0.02)

    def cut_until(self, host: Host) -> float:
        """Until when a host does not reach the hub's; 0: it does."""
        now, hosts = self.sim.now, self.sim.hosts
        return max(host.is_cut(now), hosts[0].is_cut(now)) if host.number else 0.0

    def connect(self, host: Host) -> None:
        """It takes a while to be there, or to fail."""
        life = host.life

        def reached() -> None:
            if host.life != life or host.member is None:
                return
            hub = self.sim.hub
            is_cut = self.cut_until(host) > 0
            if is_cut or hub is None or not hub.alive or not self.sim.hosts[0].powered:
                takes = 5.0 if is_cut else 0.001
                is_nobody = not is_cut and self.sim.hosts[0].powered
                refused = ("unlinked", "no", False, is_nobody)
                self.sim.at(takes, lambda: self.sim.of_life(host, life, *refused))
                return
            connection = Connection(host, hub)
            number = next(self.numbers)
            hub.connections[number] = connection
            host.connection = connection
            self.sim.step_member(host, "linked")

        self.sim.at(self.delay(), reached)

    def number_of(self, connection: Connection) -> int | None:
        found = (n for n, c in connection.hub.connections.items() if c is connection)
        return next(found, None)

    def send(self, connection: Connection, way: str, message: Any) -> None:
        """A message arrives after all that were sent that way before it; or never."""
        self.sim.seen[f"message {type(message).__name__}"] += 1
        self.deliver(connection, way, lambda: self.arrive(connection, way, message))
        if self.random.random() < self.sim.faults.doubled:
            self.deliver(connection, way, lambda: self.arrive(connection, way, message))
        self.said.append((connection, way, message))

    def deliver(self, connection: Connection, way: str, call: Callable[[], None]) -> None:
        when = max(self.sim.now + self.delay(), connection.latest[way] + 1e-6)
        connection.latest[way] = when

        def arrives() -> None:
            host = connection.host
            until = (
                max(host.is_cut(self.sim.now), self.sim.hosts[0].is_cut(self.sim.now))
                if host.number
                else 0
            )
            if until > self.sim.now:  # TCP sends it again, until the cut is over
                later = max(until + 0.2, connection.latest[way] + 1e-6)
                connection.latest[way] = later
                self.sim.at(later - self.sim.now, call)
            else:
                call()

        self.sim.at(when - self.sim.now, arrives)

    def arrive(self, connection: Connection, way: str, message: Any) -> None:
        if way == "down":
            if connection.open_here and connection.host.connection is connection:
                self.sim.worlds.before_member_hears(connection.host, message)
                self.sim.step_member(connection.host, "received", message, over=connection)
            return
        number = self.number_of(connection)
        if connection.open_there and connection.hub is self.sim.hub and number is not None:
            if isinstance(message, Hello):
                addr = f"10.0.0.{connection.host.number}"
                local = connection.host.number == 0
                if not connection.is_greeted:
                    connection.is_greeted = True
                    self.sim.worlds.returned.add(connection.host.number)
                    self.sim.worlds.comes(connection.host, message)
                    self.sim.step_hub("connected", number, message, addr, local)
            else:
                self.sim.worlds.before_hub_hears(number, message)
                self.sim.step_hub("received", number, message)

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
        if connection.hub is self.sim.hub:
            self.sim.say(f"hub: lost {connection.host.name}, certain: {certain}")
            self.sim.worlds.goes(connection.host, number, certain)
            self.sim.step_hub("disconnected", number, certain)

    def lost_here(self, connection: Connection) -> None:
        """The member learns it."""
        if not connection.open_here:
            return
        connection.open_here = False
        if connection.host.connection is connection:
            connection.host.connection = None
            self.sim.say(f"{connection.host.name}: lost the hub")
            self.sim.step_member(connection.host, "unlinked", "lost")

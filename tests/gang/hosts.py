"""What a simulation is made of: nodes with launchers and workers, hubs, and connections."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from spawnlaunch.gang import hub_records as h
from spawnlaunch.gang import member_records as m
from spawnlaunch.gang.messages import Cause


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
        self.told_after: float | None = None  # to end, after it has started
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


def name_of(record: Any) -> str:
    """Of an event: what it is, and what was heard."""
    name = type(record).__name__
    return f"{name} {type(record.message).__name__}" if name == "Heard" else name

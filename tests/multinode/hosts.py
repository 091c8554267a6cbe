"""What a simulation is made of: nodes with launchers and workers, hubs, and connections."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from spawnlaunch.multinode.hub import Hub
from spawnlaunch.multinode.member import Member
from spawnlaunch.outcome.failures import Cause


class Broken(AssertionError):
    """Something that must always hold did not."""


class Calls:
    """Keeps what rules call, to be done when the rule has ended."""

    place = "node0:29400"

    def __init__(self) -> None:
        self.made: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.made.append((name, *args))

    def calls(self, name: str) -> list[list[Any]]:
        """The arguments of each call."""
        return [args for called, *args in self.made if called == name]

    def start_line(self, rank: int, nproc: int) -> str:
        return f"<{rank} {nproc}>"

    def taken(self) -> list[tuple[Any, ...]]:
        made, self.made = self.made, []
        return made


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

    def __init__(self, number: int, state: Hub, calls: Calls) -> None:
        self.number = number
        self.state, self.calls = state, calls
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
        self.seen: float | None = None  # when the launcher told it to end: it was dying already


class Host:
    """A node: its launcher, which is a member and may have the hub, and its workers."""

    def __init__(self, number: int, random: Random) -> None:
        self.number = number
        self.name = f"node{number}"
        self.boots = 0
        self.starts = 0
        self.came = 0.0
        self.told_after: float | None = None  # to end, after it has started
        self.role = "ps" if number % 3 == 1 else "default"
        self.is_unable = False  # its next launcher cannot take part
        self.is_restarted = False  # whatever starts its launcher starts it again
        self.nproc = random.randint(1, 3)
        self.rate = random.uniform(0.99, 1.01)
        self.offset = random.uniform(0, 1e5)
        self.member: Member | None = None
        self.calls = Calls()  # of the member
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

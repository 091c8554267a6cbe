"""What breaks in a simulation, and when; and how its launches are set."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from spawnlaunch.multinode.hub import JOINING
from spawnlaunch.multinode.settings import Settings

if TYPE_CHECKING:
    from tests.multinode.simulation import Connection, Host, Simulation

NOBODY, USER, MANAGER = "nobody", "user", "manager"  # who starts a lost launcher again


def plan(random: Random, nodes: int | None = None) -> tuple[Settings, bool, int]:
    """Settings, whether node ranks are given, and how many launchers there are (None: a few)."""
    count = nodes or random.choice((2, 2, 3, 3, 4, 5, 6, 9))
    spares = min(random.choice((0, 0, 0, 1, 2)) if count > 2 else 0, count - 1)
    most = count - spares
    least = random.randint(1, most) if not spares and random.random() < 0.5 else most
    starter, max_restarts = random.choice((NOBODY, USER, MANAGER)), random.choice((0, 1, 2, 3))
    settings = Settings(
        least=least,
        most=most,
        spares=spares,
        max_restarts=max_restarts,
        window_s=random.choice((0.0, 0.0, 30.0)),
        final=frozenset({3}) if random.random() < 0.2 else frozenset(),
        can_return=starter != NOBODY and max_restarts > 0,
        is_restarted=starter == MANAGER,
        expected=tuple(f"node{n}" for n in range(count)) if random.random() < 0.3 else (),
        join_s=random.uniform(35, 90),
        last_call_s=random.uniform(0.5, 10),
        lost_after_s=random.uniform(3, 12),
        grace_s=random.uniform(0.5, 15),
        failure_grace_s=random.uniform(0.5, 10),
        timeout_s=random.choice((0.0, 0.0, 0.0, 40.0)),
        beat_s=random.choice((1.0, 5.0, 15.0)),
        ends_hung=random.random() < 0.5,
        flags="--nnodes=2 --grace=0",
    )
    return settings, random.random() < 0.5, count


class Faults:
    """Faults of one schedule. `hurt` are hosts that had one of their own, so may end otherwise."""

    def __init__(self, sim: Simulation) -> None:
        self.sim, self.random = sim, sim.random
        self.hurt: set[int] = set()
        self.frozen: set[int] = set()
        self.pending = 0
        self.has_hub_jumped = False  # a fence is as long as its clock says
        self.apart_until: dict[int, float] = {}  # hosts that have lost the hub before all have met
        self.doubled = self.random.choice((0.0, 0.0, 0.1))
        self.kinds = (
            self.worker, self.worker, self.workers, self.workers, self.workers, self.launcher,
            self.launcher, self.power, self.cut, self.cut, self.reset, self.freeze, self.jump,
            self.signal, self.signal_all, self.hang, self.stuck, self.hub_in_a_cut,
            self.signal_while_it_stops,
        )  # fmt: skip

    def schedule(self) -> None:
        if self.random.random() < 0.1:
            host = self.random.choice((self.sim.hosts[0], self.host()))
            host.signal_after = self.random.choice((0.0, 0.01, 1.0)) * self.random.random()
        if self.random.random() < 0.15:
            self.unable(self.host())
        for _ in range(self.random.choice((0, 1, 1, 2, 2, 3, 5))):
            kind = self.random.choice(self.kinds)
            self.after(self.random.uniform(0, self.random.choice((5, 40, 120))), kind)

    def after(self, seconds: float, kind: Callable[[], None]) -> None:
        self.pending += 1

        def happens() -> None:
            self.pending -= 1
            self.sim.seen[f"fault {kind.__name__}"] += 1
            kind()

        self.sim.at(seconds, happens)

    def host(self) -> Host:
        return self.random.choice(self.sim.hosts)

    def is_alive(self, host: Host) -> bool:
        return bool(host.node) and not host.is_stuck

    # Faults

    def worker(self) -> None:
        busy = [host for host in self.sim.hosts if host.workers]
        if busy:
            code = self.random.choice((1, 1, 3, 7, -9, -11, -6))
            self.sim.worker_fails(self.random.choice(busy), code)

    def workers(self) -> None:
        """Some fail, one soon after the other, and each by itself."""
        for host in [host for host in self.sim.hosts if host.workers][:3]:
            after, code = self.random.uniform(0, 0.5), self.random.choice((1, 7, -11, -6))
            self.sim.at(after, lambda h=host, c=code: self.sim.worker_fails(h, c))  # type: ignore[misc]

    def launcher(self, host: Host | None = None) -> None:
        """Killed with its guard; it may be started again."""
        host = host or self.host()
        if self.is_alive(host):
            self.sim.say(f"FAULT {host.name}: launcher killed")
            self.hurt_(host)
            self.sim.killed(host, self.random.uniform(0, 0.45))
            self.sim.end(host)
            self.comes_back(host, self.random.uniform(0.4, self.random.choice((30, 90))))

    def hurt_(self, host: Host) -> None:
        """It may end otherwise than the others; all may, where it has the hub."""
        self.hurt |= {each.number for each in self.sim.hosts} if host.number == 0 else {host.number}

    def comes_back(self, host: Host, after: float, is_sure: bool = False) -> None:
        """Started again, now and then; a hub only by a manager, which starts all of them."""
        is_lucky = self.random.random() < 0.6
        is_started = self.sim.settings.is_restarted if host.number == 0 else is_lucky
        if not (is_started or is_sure):
            return

        def back() -> None:
            self.pending -= 1
            host.has_power, host.is_unable = True, False
            self.sim.start(host)

        self.pending += 1
        self.sim.at(after, back)

    def power(self) -> None:
        """The machine goes off, and says nothing."""
        host = self.host()
        if not self.is_alive(host) or not host.has_power:
            return
        self.sim.say(f"FAULT {host.name}: power lost")
        self.hurt_(host)
        host.has_power = False
        connections = [host.connection] if host.connection else []
        if host.number == 0:
            connections = list(self.sim.net.connections.values())
            self.sim.net.connections.clear()
        for each in connections:
            dead, end = ("up", "down") if host.number == 0 else ("down", "up")
            each.is_open[dead] = False
            self.notices(each, end, self.sim.settings.lost_after_s + self.random.uniform(0, 1.5))
        self.sim.killed(host, 0.0)
        host.node = host.hub = host.connection = None
        host.life += 1
        self.comes_back(host, self.random.uniform(5, 60))

    def notices(self, connection: Connection, end: str, after: float) -> None:
        self.sim.at(after, lambda: self.sim.lost(connection, end, False))

    def cut(self, host: Host | None = None, lasts: float = 0.0) -> None:
        """A cable is out for a while; each end finds out for itself, if it is long enough."""
        host, limit_s = host or self.host(), self.sim.settings.lost_after_s
        lasts = lasts or self.random.uniform(*self.random.choice(((0.1, 4), (1, 60))))
        self.sim.say(f"FAULT {host.name}: cut for {lasts:.3f} s")
        host.cuts.append((self.sim.now, self.sim.now + lasts))
        others = self.sim.hosts if host.number == 0 else [host]
        if lasts > limit_s:
            self.apart({other.number for other in others}, self.sim.now + lasts)
        for other in others:
            here, there = (limit_s + self.random.uniform(0, 1.5) for _ in range(2))
            if other.connection and other.number and min(here, there) < lasts:
                # who has not noticed before the end gets a reset then, which is not certain
                self.notices(other.connection, "down", min(here, lasts + 0.1))
                self.notices(other.connection, "up", min(there, lasts + 0.1))

    def apart(self, hosts: set[int], until: float) -> None:
        """Hosts have lost the hub; before all have met they meet again as if nothing had been."""
        hub = self.sim.hub
        if hub and hub.epoch == 0 and hub.phase == JOINING:
            self.apart_until.update(dict.fromkeys(hosts, until))
        else:
            self.hurt |= hosts

    def met(self) -> None:
        """All have met, or the launch has ended before: who is apart now may end otherwise.

        Who has just come again may not know it yet, nor the hub.
        """
        late = (n for n, until in self.apart_until.items() if self.sim.now < until + 10.0)
        self.hurt.update(late)
        self.apart_until.clear()

    def reset(self) -> None:
        """A connection breaks, and what was under way is lost."""
        host = self.host()
        if host.connection and host.number:
            self.sim.say(f"FAULT {host.name}: connection reset")
            self.apart({host.number}, self.sim.now)
            for end in ("down", "up"):
                self.notices(host.connection, end, self.random.uniform(0, 1))

    def freeze(self) -> None:
        """A launcher is stopped for a while; its workers are not."""
        host = self.host()
        if host.is_stuck or host.frozen_until > self.sim.now:
            return
        lasts = self.random.uniform(*self.random.choice(((0.5, 30), (30, 150))))
        self.sim.say(f"FAULT {host.name}: frozen for {lasts:.3f} s")
        host.frozen_until = self.sim.now + lasts
        if lasts > 30 or host.number in self.frozen:
            self.hurt_(host)
        if lasts > 1:
            self.frozen.add(host.number)

    def stuck(self) -> None:
        """A launcher is stopped for good."""
        host = self.host()
        if self.is_alive(host) and host.frozen_until <= self.sim.now and self.random.random() < 0.5:
            self.sim.say(f"FAULT {host.name}: frozen for good")
            host.is_stuck, host.frozen_until = True, 1e9
            self.frozen.add(host.number)
            self.hurt_(host)

    def hub_in_a_cut(self) -> None:
        """The hub is killed while a node is cut off, and comes back before that has noticed."""
        self.cut(self.random.choice(self.sim.hosts[1:]), self.random.uniform(10, 40))
        self.sim.at(self.random.uniform(0, 3), lambda: self.launcher(self.sim.hosts[0]))

    def jump(self) -> None:
        """A clock that should not does."""
        host, seconds = self.host(), self.random.uniform(-50, 300)
        self.sim.say(f"FAULT {host.name}: clock jumps by {seconds:.1f} s")
        host.offset += seconds
        self.has_hub_jumped |= host.number == 0
        self.frozen.add(host.number)
        if abs(seconds) > 10:
            self.hurt_(host)

    def signal(self) -> None:
        host = self.host()
        self.signalled(host)
        if self.random.random() < 0.3:
            self.sim.at(self.random.uniform(0.01, 3), lambda: self.signalled(host))

    def signal_all(self) -> None:
        for host in self.sim.hosts:
            self.sim.at(self.random.uniform(0, 0.5), lambda host=host: self.signalled(host))  # type: ignore[misc]

    def signalled(self, host: Host) -> None:
        if host.node is None:
            return
        self.sim.say(f"FAULT {host.name}: told to end")
        is_early = host.node.stage == "seeking"
        # The hub may not be there; and told twice, it ends at once.
        if host.cut_until() > 0 or (is_early and (host.number or host.node.report.leaving)):
            self.hurt.add(host.number)
        elif self.sim.settings.is_elastic and not is_early:
            self.hurt_(host)
        self.sim.later(0.0, host, lambda node: node.signalled(15, host.now))

    def signal_while_it_stops(self) -> None:
        self.worker()
        host = self.host()
        self.sim.at(self.random.uniform(0, 3), lambda: self.signalled(host))

    def unable(self, host: Host) -> None:
        """A launcher cannot take part; one that is started again can then."""
        host.is_unable = True
        host.is_restarted = self.random.random() < 0.3
        self.hurt.add(host.number)
        if host.is_restarted or self.sim.settings.is_restarted:
            host.is_restarted = True
            self.comes_back(host, self.random.uniform(10, 60))

    def hang(self) -> None:
        """All fall silent, one after the other; some may write again."""
        for host in [host for host in self.sim.hosts if host.workers]:
            after = self.random.uniform(0, 3)
            self.sim.later(after, host, lambda node: node.quiet(True))
            if self.random.random() < 0.2:
                more_s = self.random.uniform(0, 9)
                self.sim.later(after + more_s, host, lambda node: node.quiet(False))

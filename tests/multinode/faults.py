"""What breaks in a simulation, and when; and how its launches are set."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from spawnlaunch.multinode.member import GREETING, SEEKING
from spawnlaunch.multinode.phases import JOINING
from spawnlaunch.multinode.settings import Settings
from tests.multinode.hosts import Connection, Host

if TYPE_CHECKING:
    from tests.multinode.simulation import Simulation


NOBODY, USER, MANAGER = "nobody", "user", "manager"  # who starts a lost launcher again
TOLD = (("--nnodes", "2"), ("--grace", "0"))  # of which a launcher may have the second otherwise


def plan(random: Random, nodes: int | None = None) -> tuple[Settings, bool, int]:
    """Settings, whether node ranks are given, and how many launchers there are (None: a few)."""
    count = nodes or random.randint(2, 6)
    spares = random.choice((0, 0, 0, 1, 2)) if count > 2 else 0
    spares = min(spares, count - 1)
    most = count - spares
    least = random.randint(1, most) if not spares and random.random() < 0.5 else most
    join_s = random.uniform(35, 90)
    starter = random.choice((NOBODY, NOBODY, USER, USER, MANAGER))
    return_s = {NOBODY: 0.0, USER: random.uniform(5, 60), MANAGER: join_s}[starter]
    max_restarts = random.choice((0, 1, 2, 3))
    settings = Settings(
        least=least,
        most=most,
        spares=spares,
        max_restarts=max_restarts,
        window_s=random.choice((0.0, 0.0, 30.0)),
        final=frozenset({3}) if random.random() < 0.2 else frozenset(),
        return_s=return_s if max_restarts else 0.0,
        is_restarted_by_manager=starter == MANAGER and max_restarts > 0,
        expected=tuple(f"node{n}" for n in range(count)) if random.random() < 0.3 else (),
        join_s=join_s,
        last_call_s=random.uniform(0.5, 10),
        lost_after_s=random.uniform(3, 12),
        grace_s=random.uniform(0.5, 15),
        failure_grace_s=random.uniform(0.5, 10),
        timeout_s=random.choice((0.0, 0.0, 0.0, 40.0)),
        beat_s=random.choice((5.0, 15.0)),
        ends_hung=random.random() < 0.5,
        flags=TOLD,
    )
    return settings, random.random() < 0.5, count


class Faults:
    """Faults of one schedule. `hurt` are hosts that had one of their own, so may end otherwise."""

    def __init__(self, simulation: Simulation) -> None:
        self.sim = simulation
        self.random = simulation.random
        self.of_launchers = Random(f"launchers {simulation.seed}")
        self.hurt: set[int] = set()
        self.frozen: set[int] = set()
        self.pending = 0
        self.has_hub_jumped = False  # a fence is as long as its clock says
        self.apart_until: dict[int, float] = {}  # hosts that have lost the hub before all have met
        self.doubled = self.random.choice((0.0, 0.0, 0.1))
        self.kinds = (
            self.worker, self.worker, self.workers, self.workers,
            self.launcher, self.power, self.cut, self.cut,
            self.reset, self.freeze, self.jump, self.signal, self.signal_all, self.hang, self.echo,
            self.echo, self.stuck, self.hub_in_a_cut, self.told_while_it_stops, self.workers,
        )  # fmt: skip

    def schedule(self) -> None:
        if self.random.random() < 0.1:
            self.signal_as_it_comes()
        if self.of_launchers.random() < 0.15:
            self.unable(self.of_launchers.choice(self.sim.hosts))
        for _ in range(self.random.choice((0, 1, 1, 2, 2, 3, 5))):
            kind = self.random.choice(self.kinds)
            self.after(self.random.uniform(0, self.random.choice((5, 40, 120))), kind)

    def after(self, seconds: float, kind: object) -> None:
        self.pending += 1

        def happens() -> None:
            self.pending -= 1
            self.sim.seen[f"fault {kind.__name__}"] += 1  # type: ignore[attr-defined]
            kind()  # type: ignore[operator]

        self.sim.at(seconds, happens)

    def host(self) -> Host:
        return self.random.choice(self.sim.hosts)

    # Faults

    def worker(self) -> None:
        busy = [host for host in self.sim.hosts if host.workers and not host.workers.told]
        if busy:
            code = self.random.choice((1, 1, 3, 7, -9, -11, -6))
            self.sim.worlds.worker_fails(self.random.choice(busy), code)

    def workers(self) -> None:
        """Some fail, one soon after the other, and each by itself."""
        busy = [host for host in self.sim.hosts if host.workers and not host.workers.told]
        for host in busy[:3]:
            after, code = self.random.uniform(0, 0.5), self.random.choice((1, 7, -11, -6))
            self.sim.at(after, lambda h=host, c=code: self.sim.worlds.worker_fails(h, c))  # type: ignore[misc]

    def launcher(self, host: Host | None = None, returns: float = 0.6) -> None:
        """Killed with its guard; it may be started again."""
        host = host or self.host()
        if host.member is None or host.is_stuck:
            return
        self.sim.say(f"FAULT {host.name}: launcher killed")
        self.hurt.add(host.number)
        if host.number == 0:
            self.hub_lost()
        self.sim.worlds.killed(host, self.random.uniform(0, 0.45))
        self.sim.end(host)
        if self.random.random() < returns:
            self.comes_back(host, self.random.uniform(0.4, self.random.choice((30, 90))))

    def comes_back(self, host: Host, after: float) -> None:
        """Started again; where nobody waits for a hub, its return would be another launch."""
        if host.number == 0 and not self.sim.settings.return_s:
            return

        def back() -> None:
            self.pending -= 1
            host.powered = True
            self.sim.start(host)

        self.pending += 1
        self.sim.at(after, back)

    def hub_lost(self) -> None:
        self.hurt |= {host.number for host in self.sim.hosts}

    def power(self) -> None:
        """The machine goes off, and says nothing."""
        host = self.host()
        if host.member is None or not host.powered or host.is_stuck:
            return
        self.sim.say(f"FAULT {host.name}: power lost")
        self.hurt.add(host.number)
        host.powered = False
        host.boots += 1
        connections = [host.connection] if host.connection else []
        if host.number == 0:
            self.hub_lost()
            connections = list(self.sim.hub.connections.values()) if self.sim.hub else []
        for connection in connections:
            self.unreachable(connection, dead_end="there" if host.number == 0 else "here")
        self.sim.worlds.killed(host, 0.0)
        if host.number == 0 and self.sim.hub:
            self.sim.hub.alive = False
            self.sim.hub = None
        host.member, host.connection = None, None
        host.life += 1
        if self.random.random() < 0.6:
            self.comes_back(host, self.random.uniform(5, 60))

    def unreachable(self, connection: Connection, dead_end: str) -> None:
        notice = self.sim.settings.lost_after_s + self.random.uniform(0, 1.5)
        if dead_end == "here":
            connection.open_here = False
            self.sim.at(notice, lambda: self.sim.network.lost_there(connection, False))
        else:
            connection.open_there = False
            self.sim.at(notice, lambda: self.sim.network.lost_here(connection))

    def cut(self, host: Host | None = None, lasts: float = 0.0) -> None:
        """A cable is out for a while; each end finds out for itself, if it is long enough."""
        host = host or self.host()
        lasts = lasts or self.random.choice(
            (self.random.uniform(0.1, 4), self.random.uniform(1, 60))
        )
        self.sim.say(f"FAULT {host.name}: cut for {lasts:.3f} s")
        begun, over = self.sim.now, self.sim.now + lasts
        host.cuts.append((begun, over))
        others = self.sim.hosts if host.number == 0 else [host]
        if lasts > self.sim.settings.lost_after_s:
            self.apart({other.number for other in others}, over)
        connections = [other.connection for other in others if other.connection and other.number]
        for connection in connections:
            here, there = (
                self.sim.settings.lost_after_s + self.random.uniform(0, 1.5) for _ in range(2)
            )
            if min(here, there) < lasts:
                # who has not noticed before the end gets a reset then, which is not certain
                self.lost(connection, min(here, lasts + 0.1), min(there, lasts + 0.1))

    def apart(self, hosts: set[int], until: float) -> None:
        """Hosts have lost the hub; before all have met they meet again as if nothing had been."""
        if self.sim.hub and self.sim.hub.state.epoch == 0 and self.sim.hub.state.phase == JOINING:
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

    def lost(self, connection: Connection, here: float, there: float) -> None:
        """Both ends learn of it, after so many seconds, and neither is certain."""
        network = self.sim.network
        self.sim.at(here, lambda: network.lost_here(connection))
        self.sim.at(there, lambda: network.lost_there(connection, False))

    def reset(self) -> None:
        """A connection breaks, and what was under way is lost."""
        host = self.host()
        connection = host.connection
        if connection and host.number:
            self.sim.say(f"FAULT {host.name}: connection reset")
            self.apart({host.number}, self.sim.now)
            self.lost(connection, self.random.uniform(0, 1), self.random.uniform(0, 1))

    def freeze(self) -> None:
        """A launcher is stopped for a while; its workers are not."""
        host = self.host()
        if host.is_stuck or host.frozen_until > self.sim.now:
            return
        lasts = self.random.choice((self.random.uniform(0.5, 30), self.random.uniform(30, 150)))
        self.sim.say(f"FAULT {host.name}: frozen for {lasts:.3f} s")
        host.frozen_until = self.sim.now + lasts
        if lasts > 30 or host.number in self.frozen:
            self.hurt.add(host.number)
            if host.number == 0:
                self.hub_lost()
        if lasts > 1:
            self.frozen.add(host.number)

    def stuck(self) -> None:
        """A launcher is stopped for good."""
        host = self.host()
        is_awake = host.frozen_until <= self.sim.now
        if host.member is not None and is_awake and self.random.random() < 0.5:
            self.sim.say(f"FAULT {host.name}: frozen for good")
            host.is_stuck = True
            host.frozen_until = 1e9
            self.frozen.add(host.number)
            self.hurt.add(host.number)
            if host.number == 0:
                self.hub_lost()

    def hub_in_a_cut(self) -> None:
        """The hub is killed while a node is cut off, and comes back before that has noticed."""
        hub, other = self.sim.hosts[0], self.random.choice(self.sim.hosts[1:])
        if hub.member is None or hub.is_stuck:
            return
        self.cut(other, self.random.uniform(10, 40))
        self.sim.at(self.random.uniform(0, 3), lambda: self.launcher(hub, 1.0))

    def jump(self) -> None:
        """A clock that should not does."""
        host = self.host()
        seconds = self.random.uniform(-50, 300)
        self.sim.say(f"FAULT {host.name}: clock jumps by {seconds:.1f} s")
        host.offset += seconds
        if host.number == 0:
            self.has_hub_jumped = True
        self.frozen.add(host.number)

    def signal(self) -> None:
        host = self.host()
        self.told(host)
        if self.random.random() < 0.3:
            self.sim.at(self.random.uniform(0.01, 3), lambda: self.told(host))

    def signal_as_it_comes(self) -> None:
        """A launcher is told to end before it has met the others."""
        host = self.random.choice((self.sim.hosts[0], self.host()))
        host.told_after = self.random.choice((0.0, 0.01, 1.0)) * self.random.random()

    def unable(self, host: Host) -> None:
        """A launcher cannot take part; one that is started again can then."""
        host.is_unable, host.is_restarted = True, self.of_launchers.random() < 0.3
        self.hurt.add(host.number)
        self.sim.seen[f"fault unable, again {host.is_restarted}"] += 1

        def mended() -> None:
            self.pending -= 1
            host.is_unable = False
            self.sim.start(host)

        if host.is_restarted:
            self.pending += 1
            self.sim.at(self.of_launchers.uniform(10, 60), mended)

    def signal_all(self) -> None:
        for host in self.sim.hosts:
            self.sim.at(self.random.uniform(0, 0.5), lambda host=host: self.told(host))  # type: ignore[misc]

    def told(self, host: Host) -> None:
        if host.member is not None:
            self.sim.say(f"FAULT {host.name}: told to end")
            is_early = host.member.state in (SEEKING, GREETING)
            # The hub may not be there; and told twice, it ends at once.
            is_cut = self.sim.network.cut_until(host) > 0
            if is_cut or (is_early and (host.number or host.member.end_signal)):
                self.hurt.add(host.number)
            elif self.sim.settings.is_elastic and not is_early:
                self.hurt.add(host.number)
                if host.number == 0:
                    self.hub_lost()
            self.sim.step_member(host, "signalled", 15)

    def told_while_it_stops(self) -> None:
        """A signal comes just after a failure."""
        self.worker()
        host = self.host()
        self.sim.at(self.random.uniform(0, 3), lambda: self.told(host))

    def hang(self) -> None:
        self.sim.worlds.hang()

    def echo(self) -> None:
        """What was said in earlier epochs is heard again, now and then while the launch lasts."""
        if self.sim.hub is None:
            return
        told = [
            (connection, way, m)
            for connection, way, m in self.sim.network.said
            if self.is_stale(connection, way, m)
        ]
        for connection, way, message in self.random.sample(told, min(20, len(told))):
            if self.is_stale(connection, way, message):
                self.sim.seen["stale"] += 1
                self.sim.network.arrive(connection, way, message)
        if self.random.random() < 0.9:
            self.after(self.random.uniform(1, 20), self.echo)

    def is_stale(self, connection: Connection, way: str, message: object) -> bool:
        epoch = getattr(message, "epoch", None)
        member, hub = connection.host.member, self.sim.hub
        if epoch is None or type(message).__name__ == "Hello" or hub is None or member is None:
            return False
        return bool(epoch < (hub.state.epoch if way == "up" else member.hello.epoch))

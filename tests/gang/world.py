"""The workers of a simulation, and what must hold for them and for the ends of launchers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from spawnlaunch.gang import hub_records as h
from spawnlaunch.gang import member_records as m
from spawnlaunch.gang.messages import Cause, Start
from tests.gang.hosts import Broken, Connection, Host, HubProcess, Workers

if TYPE_CHECKING:
    from tests.gang.simulation import Simulation


class Fact(NamedTuple):
    """A failure as it truly was."""

    when: float
    host: int
    rank: int
    is_victim: bool


class Worlds:
    """Workers by node, and the record of all that began."""

    def __init__(self, simulation: Simulation) -> None:
        self.sim = simulation
        self.random = simulation.random
        self.told: dict[tuple[int, int], dict[int, Start]] = {}  # by host
        self.launches: dict[tuple[int, int], set[int]] = {}
        self.failures: dict[tuple[int, int], list[Fact]] = {}
        self.lasts: dict[tuple[int, int], float] = {}
        self.exits: list[tuple[int, int, Cause | None]] = []
        self.faults = 0
        self.last_port = 0
        self.returned: set[int] = set()  # hosts that said hello again since the last epoch

    def check(self, holds: object, what: str) -> None:
        if not holds:
            raise Broken(f"at {self.sim.now:.4f}: {what}")

    # The hub

    def begun(self, hub: HubProcess, starts: list[tuple[Connection | None, Start]]) -> None:
        """The hub begins an epoch: all are told one world."""
        one = starts[0][1]
        world = (hub.number, one.epoch)
        self.sim.say(f"hub: world {world} of {one.nnodes} nodes, {one.world_size} ranks")
        self.check(world not in self.told, f"agree: {world} begins twice")
        self.check(
            all(one.epoch > e for n, e in self.told if n == hub.number), "agree: epochs grow"
        )
        ranks: list[int] = []
        for connection, start in starts:
            if connection is None:
                continue
            same = start._replace(node_rank=one.node_rank, first_rank=one.first_rank)
            self.check(same == one, f"agree: {start} and {one}")
            ranks += range(start.first_rank, start.first_rank + connection.host.nproc)
        if all(connection for connection, _ in starts):
            self.check(sorted(ranks) == list(range(one.world_size)), f"agree: ranks {ranks}")
        node_ranks = sorted(start.node_rank for _, start in starts)
        self.check(node_ranks == list(range(one.nnodes)), f"agree: node ranks {node_ranks}")
        self.check(one.nnodes >= self.sim.settings.least, "agree: enough nodes")
        self.check(one.nnodes <= self.sim.settings.most, "agree: not too many nodes")
        self.check(one.used <= self.sim.settings.max_restarts, f"budget: {one.used}")
        self.check(one.master_port != self.last_port, "agree: a port of its own")
        self.last_port = one.master_port
        self.keeps_ranks(world, starts)
        self.told[world] = {c.host.number: start for c, start in starts if c}
        self.lasts[world] = self.random.uniform(2, 50)

    def keeps_ranks(
        self, world: tuple[int, int], starts: list[tuple[Connection | None, Start]]
    ) -> None:
        """Who has worked in the last epoch, and whose node rank there still is, has it again."""
        last = self.told.get((world[0], world[1] - 1), {})
        for connection, start in starts:
            host = connection.host if connection else None
            old = last.get(host.number) if host else None
            if host and old and old.node_rank < start.nnodes and host.number not in self.returned:
                kept = old.node_rank == start.node_rank
                self.check(kept, f"stay: {host.name} was {old.node_rank}, is {start.node_rank}")
        self.returned.clear()

    def after_hub(self, before: h.Hub, hub: h.Hub) -> None:
        self.check(hub.epoch >= before.epoch, "agree: epochs grow")
        if before.phase == h.STOPPING and hub.phase == h.ENDED and hub.cause:
            self.check(
                all(n.state == "idle" for n in hub.nodes.values()), "alone: all have stopped"
            )
            self.reported(hub.epoch, hub.cause)
        if hub.phase == h.RUNNING:
            self.while_running(hub)
        if before.phase != h.ENDED and hub.phase == h.ENDED:
            self.sim.seen[f"end {hub.cause.kind if hub.cause else 'well'}"] += 1

    def while_running(self, hub: h.Hub) -> None:
        """What the hub should not let go on."""
        settings, nodes = self.sim.settings, hub.nodes.values()
        at = (hub.clock or 0.0) - hub.slept
        limit = settings.timeout_s and at > (hub.began or at) + settings.timeout_s
        self.check(not limit, "timeout: it is over")
        newcomers = [n for n in nodes if n.state == "idle" and not n.leaving]
        is_ending = any(n.state == "done" for n in nodes)
        is_wanted = len(newcomers) > 0 and hub.size < settings.most and not is_ending
        self.check(not is_wanted, f"join: nobody takes {newcomers}")
        if hub.asked is not None:
            silent = [n.silent for n in nodes if n.state == "busy"]
            self.check(all(silent), f"hang: asked, though some talk {silent}")

    def again(self, hub: h.Hub, kind: str, host: str, rank: str, number: str) -> None:
        """There will be another epoch."""
        self.sim.seen[f"again {kind}"] += 1
        epoch = hub.epoch - (hub.phase == h.RUNNING)
        self.reported(epoch, Cause(kind, host, int(rank)))
        is_final = kind == "failure" and int(number) in self.sim.settings.final
        self.check(not is_final, "final: this status is not tried again")
        if kind in ("failure", "hang", "lost"):
            self.faults += 1
            most = self.sim.settings.max_restarts
            if not self.sim.settings.window_s and self.sim.hubs == 1:
                self.check(self.faults <= most, f"budget: {self.faults} of {most}")

    def reported(self, epoch: int, cause: Cause) -> None:
        """The first failure was the first."""
        assert self.sim.hub is not None
        if cause.kind != "failure" or self.sim.faults.frozen:
            return
        facts = self.failures.get((self.sim.hub.number, epoch), [])
        mine = [f for f in facts if not self.is_told_late(f)]
        told = [f for f in facts if (f"node{f.host}", f.rank) == (cause.host, cause.rank)]
        self.check(told, f"first: {cause} never happened")
        error_s = 2.1 if self.sim.network.slow else 0.08
        true = [f for f in mine if not f.is_victim] or mine
        earlier = [f for f in true if f.when < min(t.when for t in told) - error_s]
        self.check(not earlier or told[0].host in self.sim.faults.hurt, f"first: {cause}, {facts}")
        if any(not f.is_victim for f in mine) and told[0] in mine:
            self.check(not told[0].is_victim, f"first: a victim, {cause}, {facts}")

    def is_told_late(self, fact: Fact) -> bool:
        """What was said during a cut is heard after it, and seems to be younger than it is."""
        cuts = {*self.sim.hosts[0].cuts, *self.sim.hosts[fact.host].cuts} if fact.host else ()
        is_cut = any(since < fact.when + 4 and fact.when < until for since, until in cuts)
        return is_cut or fact.host in self.sim.faults.hurt

    def before_hub_hears(self, number: int, message: Any) -> None:
        """What is said of an earlier epoch changes nothing."""
        hub = self.sim.hub
        epoch = getattr(message, "epoch", None)
        if (
            hub is None
            or epoch is None
            or epoch >= hub.state.epoch
            or number not in hub.state.nodes
        ):
            return
        if self.sim.hosts[0].frozen_until > self.sim.now:
            return
        clock = self.sim.clock(self.sim.hosts[0])
        ticked, _ = self.sim.hub_rules.step(hub.state, h.Tick(), clock)
        heard, actions = self.sim.hub_rules.step(ticked, h.Heard(number, message), clock)
        at = clock - ticked.slept
        if number in ticked.nodes:
            node = ticked.nodes[number]._replace(heard=at)
            ticked = ticked._replace(nodes={**ticked.nodes, number: node})
        self.check(heard == ticked and not actions, f"stale: {message} changed {ticked} to {heard}")

    def before_member_hears(self, host: Host, message: Any) -> None:
        """The same for a member."""
        epoch = getattr(message, "epoch", None)
        member = host.member
        if member is None or epoch is None or epoch >= member.hello.epoch:
            return
        clock = self.sim.clock(host)
        ticked, _ = self.sim.member_rules.step(member, m.Tick(), clock)
        heard, actions = self.sim.member_rules.step(ticked, m.Heard(message), clock)
        heard = heard._replace(heard=ticked.heard)
        self.check(heard == ticked and not actions, f"stale: {message} changed {ticked} to {heard}")

    # Workers

    def launched(self, host: Host, start: Start) -> None:
        assert host.connection is not None
        world = (host.connection.hub.number, start.epoch)
        self.check(self.told.get(world, {}).get(host.number) == start, f"agree: {start}")
        here = self.launches.setdefault(world, set())
        self.check(host.number not in here, f"agree: {world} twice on {host.name}")
        here.add(host.number)
        self.check(host.workers is None, f"alone: {host.name} has workers already")
        for other in self.sim.hosts:
            if other.workers and other.workers.world != world:
                frozen = other.number in self.sim.faults.frozen or self.sim.faults.has_hub_jumped
                self.check(
                    frozen, f"alone: {world} begins, {other.name} runs {other.workers.world}"
                )
        host.workers = workers = Workers(world)
        lasts = self.lasts[world] + self.random.uniform(0, 3)
        self.sim.at(lasts, lambda: self.ends(host, workers, well=True))

    def halted(self, host: Host, grace_s: float) -> None:
        workers = host.workers
        if workers is None:
            return
        workers.told = True
        takes = self.random.choice((0.0, 0.01, 1.0)) * grace_s + self.random.uniform(0, 0.05)
        if workers.ends is None or self.sim.now + takes < workers.ends:
            workers.ends = self.sim.now + takes
            self.sim.at(takes, lambda: self.ends(host, workers, well=False))

    def ends(self, host: Host, workers: Any, well: bool) -> None:
        """All workers of a host have ended; a little later the launcher is ready for others."""
        if host.workers is not workers or (well and workers.told):
            return
        workers.tell()
        host.workers = None
        codes = 0 if well else -15
        start = self.told[workers.world][host.number]
        ranks = range(start.first_rank, start.first_rank + host.nproc)
        port = next(self.sim.ports)
        ended = m.WorkersEnded(well, port, tuple((rank, codes) for rank in ranks))
        life = host.life
        takes = self.random.choice((0.0, self.random.uniform(0, 1)))
        self.sim.at(takes, lambda: self.sim.of_life(host, life, ended))

    def killed(self, host: Host, after: float) -> None:
        """The kernel kills the workers of a launcher that is no more."""
        workers = host.workers

        def die() -> None:
            if host.workers is workers:
                host.workers = None

        if after:
            self.sim.at(after, die)
        else:
            die()

    def worker_fails(self, host: Host, code: int, victim: bool = False) -> None:
        workers = host.workers
        if workers is None or workers.told or workers.failed:
            return
        workers.failed = True
        start = self.told[workers.world][host.number]
        rank = start.first_rank + self.random.randrange(host.nproc)
        age = self.random.choice((0.0, self.random.uniform(0, 2)))
        self.sim.say(
            f"FAULT {host.name}: rank {rank} fails, {code}, victim {victim}, told {age:.3f}"
        )
        fact = Fact(self.sim.now, host.number, rank, victim or code == -6)
        self.failures.setdefault(workers.world, []).append(fact)
        life = host.life
        words = "Connection closed by peer" if victim else "ValueError"

        def tell() -> None:
            workers.tell = lambda: None
            if host.workers is workers:
                self.halted(host, self.sim.settings.failure_grace_s)
                failed = m.WorkerFailed(
                    rank, code, age_s=(self.sim.now - fact.when) * host.rate, words=words
                )
                self.sim.of_life(host, life, failed)

        workers.tell = tell
        self.sim.at(age, lambda: workers.tell())
        if not victim and self.random.random() < 0.5:
            for other in self.sim.hosts:
                if other is not host and other.workers and other.workers.world == workers.world:
                    after = self.random.uniform(0.001, 0.5)
                    self.sim.at(after, lambda o=other: self.worker_fails(o, 1, True))  # type: ignore[misc]

    def hang(self) -> None:
        """All fall silent, one after the other; some may talk again."""
        for host in self.sim.hosts:
            if host.workers is None:
                continue
            life = host.life
            after = self.random.uniform(0, 3)
            self.sim.at(after, lambda h=host, n=life: self.sim.of_life(h, n, m.Quiet(True)))  # type: ignore[misc]
            if self.random.random() < 0.2:
                later = after + self.random.uniform(0, 9)
                self.sim.at(later, lambda h=host, n=life: self.sim.of_life(h, n, m.Quiet(False)))  # type: ignore[misc]

    # Ends

    def exited(self, host: Host, status: int, cause: Cause | None) -> None:
        self.sim.say(f"{host.name}: exits with {status}, {cause}")
        self.check(host.workers is None, f"nothing left: {host.name} ends before its workers")
        host.exit = (status, cause)
        if cause and (cause.kind, cause.words) == ("absent", "the hub"):
            reachable = self.sim.ended - max(host.came, self.sim.began)  # a try is up to 6 s long
            cuts = (*host.cuts, *self.sim.hosts[0].cuts)
            was_cut = any(until > self.sim.ended - 6.0 for _, until in cuts)
            missed = self.sim.hub is None and (reachable < 6.0 or was_cut)
            self.check(
                missed or host.number in self.sim.faults.hurt | self.sim.faults.frozen,
                "an end: it found no hub",
            )
            self.sim.faults.hurt.add(host.number)
        self.exits.append((host.number, status, cause))
        self.sim.seen[f"exit {cause.kind if cause else 'well'}"] += 1

    def at_the_end(self) -> None:
        for host in self.sim.hosts:
            if host.is_stuck:
                continue
            self.check(host.member is None, f"an end: {host.name} has none, {self.sim.state()}")
        sound = {n: (s, c) for n, s, c in self.exits if n not in self.sim.faults.hurt}
        self.check(len(set(sound.values())) <= 1, f"one end: {sound}")

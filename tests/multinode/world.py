"""The workers of a simulation, by node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spawnlaunch.multinode.messages import Failed, Start
from spawnlaunch.outcome.failures import Cause
from tests.multinode.first import Fact
from tests.multinode.hosts import Connection, Host, HubProcess, Workers
from tests.multinode.promises import Promises

REPORT = "report_silence"  # an event of a member

if TYPE_CHECKING:
    from tests.multinode.simulation import Simulation


class Worlds(Promises):
    """Workers by node: how long they run, how they fail, and when they end."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation)
        self.random = simulation.random
        self.lasts: dict[tuple[int, int], float] = {}

    def begun(self, hub: HubProcess, starts: list[tuple[Connection | None, Start]]) -> None:
        super().begun(hub, starts)
        self.lasts[hub.number, starts[0][1].epoch] = self.random.uniform(2, 50)

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
                frozen = frozen or (
                    not self.sim.settings.is_restarted_by_manager and world[0] in self.newcomers
                )
                self.check(
                    frozen, f"alone: {world} begins, {other.name} runs {other.workers.world}"
                )
        host.workers = workers = Workers(world)
        lasts = self.lasts[world] + self.random.uniform(0, 3)
        self.sim.at(lasts, lambda: self.ends(host, workers, well=True))

    def halted(self, host: Host, _: Cause, grace_s: float) -> None:
        workers = host.workers
        if workers is None:
            return
        workers.told = True
        workers.seen = self.sim.now
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
        ended = ("workers_ended", well, port, tuple((rank, codes) for rank in ranks))
        life = host.life
        takes = self.random.choice((0.0, self.random.uniform(0, 1)))
        self.sim.at(takes, lambda: self.sim.of_life(host, life, *ended))

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
        dies_s = self.random.choice((0.0, self.random.uniform(0, 2)))
        self.sim.say(
            f"FAULT {host.name}: rank {rank} fails, {code}, victim {victim}, dies {dies_s:.3f}"
        )
        fact = Fact(self.sim.now, host.number, rank, code, victim)
        if victim and (code != -6 or self.random.random() < 0.5):
            fact.words = "Connection closed by peer"
        is_written = code > 0 and self.random.random() < 0.5  # to the error file
        self.failures.setdefault(workers.world, []).append(fact)
        life, began = host.life, self.sim.now - 1.0

        def tell() -> None:
            workers.tell = lambda: None
            if host.workers is workers:
                fact.was_dying = workers.seen is not None and not is_written
                seen = self.sim.now if workers.seen is None else workers.seen
                fact.known = fact.when if is_written else seen
                age_s = (self.sim.now - fact.known) * host.rate
                early_s = fact.known - began if fact.was_dying else 0.0
                cause = Cause("failure", host.name, rank, code, fact.words, pid=1)
                self.halted(host, cause, self.sim.settings.failure_grace_s)
                failed = Failed(start.epoch, cause, age_s, early_s)
                self.sim.of_life(host, life, "worker_failed", failed)

        workers.tell = tell
        self.sim.at(dies_s, lambda: workers.tell())
        if not victim and self.random.random() < 0.5:
            for other in self.sim.hosts:
                if other is not host and other.workers and other.workers.world == workers.world:
                    after = self.random.uniform(0.001, 0.5)
                    its = self.random.choice((1, -6))
                    self.sim.at(after, lambda o=other, c=its: self.worker_fails(o, c, True))  # type: ignore[misc]

    def hang(self) -> None:
        """All fall silent, one after the other; some may talk again."""
        for host in self.sim.hosts:
            if host.workers is None:
                continue
            life = host.life
            after = self.random.uniform(0, 3)
            self.sim.at(after, lambda h=host, n=life: self.sim.of_life(h, n, REPORT, True))  # type: ignore[misc]
            if self.random.random() < 0.2:
                later = after + self.random.uniform(0, 9)
                self.sim.at(later, lambda h=host, n=life: self.sim.of_life(h, n, REPORT, False))  # type: ignore[misc]

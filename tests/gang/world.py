"""The workers of a simulation, and what must hold for them and for the ends of launchers."""

from __future__ import annotations

from copy import deepcopy
from math import inf
from signal import SIGABRT, SIGSEGV
from typing import TYPE_CHECKING, Any

from spawnlaunch.failures import ABORT, CRASH, LATE_S, OWN, VICTIM, Cause
from spawnlaunch.gang.hub import RETURN_S
from spawnlaunch.gang.messages import Failed, Hello, Stacked, Start
from spawnlaunch.gang.phases import ENDED, JOINING, RUNNING, STACKS_S, STOPPING
from spawnlaunch.gang.roster import BUSY
from tests.gang.hosts import Broken, Calls, Connection, Host, HubProcess, Workers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spawnlaunch.gang.hub import Hub
    from tests.gang.simulation import Simulation


class Fact:
    """A failure as it truly was, and as its launcher knows it."""

    def __init__(self, when: float, host: int, rank: int, code: int, is_victim: bool) -> None:
        self.when, self.host, self.rank, self.code = when, host, rank, code
        self.is_victim = is_victim
        self.known = inf  # when it was at the latest
        self.was_dying = False  # when it was seen first, so that it may have been any time before
        self.words = ""

    def __repr__(self) -> str:
        return f"Fact({vars(self)})"

    @property
    def kind(self) -> int:
        """What `Failure.order` is to come to."""
        if self.words:
            return VICTIM
        return {-SIGSEGV: CRASH, -SIGABRT: ABORT}.get(self.code, OWN)


def goes_before(one: Fact, other: Fact, error_s: float) -> bool:
    """Whether it may be the first though it is known from a later time."""
    late_s = LATE_S + error_s if one.kind == CRASH else 0.0
    return one.kind < other.kind and (one.was_dying or one.known - other.known <= late_s)


def shadow_of(rules: Any) -> tuple[Any, Calls]:
    """The same rules, to be tried; and what they call."""
    calls = Calls()
    its = [getattr(rules, name, None) for name in ("net", "link", "launcher")]
    shadow = deepcopy(rules, {id(one): calls for one in its if one})
    shadow.wake = calls.wake
    return shadow, calls


def known(rules: Any) -> dict[str, Any]:
    """All that rules know."""
    nodes = {conn: {**vars(node)} for conn, node in getattr(rules, "nodes", {}).items()}
    return {**vars(rules), "nodes": nodes}


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
        self.calls: set[tuple[int, float]] = set()  # of the roll, by hub and moment
        self.faults = 0
        self.last_port = 0
        self.newcomers: set[int] = set()  # hubs that began with nobody who knew of one before
        self.returned: set[int] = set()  # hosts that said hello again since the last epoch
        self.missing: dict[int, float] = {}  # hosts that will not come, since when the hub knows it

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
        of_role: dict[tuple[str, int], list[int]] = {}
        for connection, start in starts:
            if connection is None:
                continue
            same = start._replace(
                node_rank=one.node_rank, first_rank=one.first_rank,
                role_rank=one.role_rank, role_size=one.role_size,
            )  # fmt: skip
            self.check(same == one, f"agree: {start} and {one}")
            nproc, role = connection.host.nproc, connection.host.role
            ranks += range(start.first_rank, start.first_rank + nproc)
            within = range(start.role_rank, start.role_rank + nproc)
            of_role.setdefault((role, start.role_size), []).extend(within)
        if all(connection for connection, _ in starts):
            self.check(sorted(ranks) == list(range(one.world_size)), f"agree: ranks {ranks}")
            for (role, size), within in of_role.items():
                self.check(within == list(range(size)), f"agree: of role {role} {within}")
        node_ranks = sorted(start.node_rank for _, start in starts)
        self.check(node_ranks == list(range(one.nnodes)), f"agree: node ranks {node_ranks}")
        self.check(one.nnodes >= self.sim.settings.least, "agree: enough nodes")
        self.check(one.nnodes <= self.sim.settings.most, "agree: not too many nodes")
        self.check(one.used <= self.sim.settings.max_restarts, f"budget: {one.used}")
        self.check(one.master_port != self.last_port, "agree: a port of its own")
        self.last_port = one.master_port
        self.keeps_ranks(world, starts)
        self.missing.clear()
        self.continues(hub, starts)
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

    def continues(self, hub: HubProcess, starts: list[tuple[Connection | None, Start]]) -> None:
        """A hub that was started again goes on with the epochs and the budget of the one before."""
        if hub.number == 1 or any(number == hub.number for number, _ in self.told):
            return
        members = [c.host.member for c, _ in starts if c]
        known = [one.hello for one in members if one and one.hello.epoch]
        if not known:
            self.newcomers.add(hub.number)
            self.sim.seen["a hub of newcomers"] += 1
            return
        self.sim.seen["a hub that goes on"] += 1
        start = starts[0][1]
        self.check(start.epoch > max(hello.epoch for hello in known), "agree: epochs go on")
        self.check(start.used > max(hello.used for hello in known), "budget: it goes on")

    def after_hub(self, before: Hub, hub: Hub) -> None:
        self.check(hub.epoch >= before.epoch, "agree: epochs grow")
        if before.phase == STOPPING and hub.phase == ENDED and hub.cause:
            self.check(
                all(n.state == "idle" for n in hub.nodes.values()), "alone: all have stopped"
            )
            self.reported(hub.epoch, hub.cause)
        self.while_waiting(before, hub)
        for cause in hub.again[len(before.again) :]:
            self.again(hub, cause)
        if hub.phase == RUNNING:
            self.while_running(hub)
        if hub.phase == JOINING:
            self.while_joining(hub)
        if (not before.epoch and hub.epoch) or (before.phase != ENDED and hub.phase == ENDED):
            self.sim.faults.met()
        if before.phase != ENDED and hub.phase == ENDED:
            self.sim.seen[f"end {hub.cause.kind if hub.cause else 'well'}"] += 1

    def comes(self, host: Host, hello: Hello) -> None:
        """The hub is about to hear a hello."""
        hub = self.sim.hub
        if not hello.status:
            self.missing.pop(host.number, None)
        elif hub and hub.state.phase == JOINING and not (hello.again or self.may_return(hub)):
            self.missing[host.number] = self.sim.now

    def goes(self, host: Host, number: int, certain: bool) -> None:
        """The hub is about to hear that a connection has ended."""
        hub = self.sim.hub
        node = hub.state.nodes.get(number) if hub else None
        if hub is None or node is None or not certain or self.may_return(hub):
            return
        if hub.state.phase == JOINING and not (node.hello.again or node.leaving):
            self.missing[host.number] = self.sim.now + RETURN_S

    def may_return(self, hub: HubProcess) -> bool:
        settings = self.sim.settings
        return settings.return_s > 0 if hub.state.floor else settings.returns

    def while_joining(self, hub: Hub) -> None:
        """Nobody waits for launchers that will not come, where there are too few others."""
        if self.sim.faults.has_hub_jumped or 0 in self.sim.faults.frozen:
            return
        gone = sum(since + 0.2 < self.sim.now for since in self.missing.values())
        others = max(self.sim.settings.total - gone, len(hub.nodes))
        self.check(not gone or others >= hub.settings.least, f"no wait: for {self.missing}")

    def while_waiting(self, before: Hub, hub: Hub) -> None:
        """Lost launchers are waited for as long as was said, and only where they may come back."""
        settings, nodes = self.sim.settings, hub.nodes.values()
        ready = sum(node.state == "idle" and not node.leaving for node in nodes)
        is_enough = ready >= settings.least and 2 * ready >= hub.size
        waited = hub.now - before.since
        limit = settings.return_s if hub.floor and settings.return_s else settings.join_s
        if before.phase == STOPPING and hub.phase == JOINING:
            self.check(is_enough or settings.return_s, "waits: nobody comes back")
        if before.phase == hub.phase == JOINING and before.floor == hub.floor:
            self.check(is_enough or waited <= limit, f"waits: {waited:.1f} s of {limit:.1f}")
        if hub.phase != ENDED or before.phase == ENDED or hub.cause is None:
            return
        if hub.cause.kind == "absent" and before.phase == JOINING:
            self.sim.seen["nobody came back"] += hub.floor > 0
            self.check(not is_enough and waited >= limit, f"goes on: ended after {waited:.1f} s")
        is_told = any(node.leaving for node in nodes)
        if hub.cause.kind == "lost" and before.phase == STOPPING and settings.return_s:
            is_used = hub.used >= settings.max_restarts
            self.check(is_told or is_used, "goes on: it could wait for the lost")

    def while_running(self, hub: Hub) -> None:
        """What the hub should not let go on."""
        settings, nodes = self.sim.settings, hub.nodes.values()
        limit = settings.timeout_s and hub.time > (hub.began or hub.time) + settings.timeout_s
        self.check(not limit, "timeout: it is over")
        newcomers = [n for n in nodes if n.state == "idle" and not n.leaving]
        is_ending = any(n.state == "done" for n in nodes)
        is_wanted = len(newcomers) > 0 and hub.size < settings.most and not is_ending
        self.check(not is_wanted, f"join: nobody takes {newcomers}")
        if hub.asked is not None:
            silent = [n.silent for n in nodes if n.state == "busy"]
            self.check(all(silent), f"hang: asked, though some talk {silent}")

    def compared(self, hub: Hub, told: Sequence[Stacked]) -> None:
        """The hub has what the nodes have told of a hang."""
        self.sim.seen["compared"] += 1
        assert hub.asked is not None
        call = (self.sim.hubs, hub.asked)
        self.check(call not in self.calls, "roll: it is called twice")
        self.calls.add(call)
        self.check(all(one.epoch == hub.epoch for one in told), "roll: of another epoch")
        is_late = hub.now >= hub.asked + STACKS_S
        missing = hub.nodes.of(BUSY).keys() - hub.told.keys()
        self.check(is_late or not missing, f"roll: {missing} have not told")
        names = [where.one for one in told for where in one.where]
        self.check(len({*names}) == len(names), f"roll: one is called twice {names}")

    def again(self, hub: Hub, cause: Cause) -> None:
        """There will be another epoch."""
        self.sim.seen[f"again {cause.kind}"] += 1
        epoch = hub.epoch - (hub.phase == RUNNING)
        self.reported(epoch, cause)
        is_final = cause.kind == "failure" and cause.code in self.sim.settings.final
        self.check(not is_final, "final: this status is not tried again")
        if cause.kind in ("failure", "hang", "lost"):
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
        one = min(told, key=lambda fact: fact.known)
        if one.host in self.sim.faults.hurt:
            return
        error_s = 2.1 if self.sim.network.slow else 0.08
        own = [f for f in facts if f.kind != VICTIM and (f in mine or f is one)] or mine
        earlier = [
            f for f in own if f.known < one.known - error_s and not goes_before(one, f, error_s)
        ]
        self.check(not earlier, f"first: {cause}, {facts}")
        if one not in mine:
            return
        self.check(one in own, f"first: a victim, {cause}, {facts}")
        if not self.sim.network.slow:
            self.is_truly_first(
                one, [f for f in own if f.known < inf], error_s, f"{cause}, {facts}"
            )

    def is_truly_first(self, one: Fact, own: list[Fact], error_s: float, what: str) -> None:
        """Though the news of one that dies slowly are later; an abort may be another's fault.

        But nobody has seen a crash begin that was over, long after another's error file was
        written, before anybody looked.
        """
        first = min(own, key=lambda fact: fact.when)
        is_clear = all(first.when < f.when - error_s for f in own if f is not first)
        if is_clear and first.kind == CRASH and goes_before(first, one, -error_s):
            self.check(one.kind == CRASH, f"first: the crash, {what}")
        is_seen = first.was_dying or first.known < one.known - error_s
        if one.is_victim and one.kind == ABORT and is_seen and first.kind < ABORT:
            self.check(one is first, f"first: a victim that has aborted, {what}")

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
        shadow, calls = shadow_of(hub.state)
        shadow.tick()
        node = shadow.nodes.get(number)
        if node:
            shadow.nodes.hear(number, shadow.now)
        self.changes_nothing(shadow, calls, message, number, message)

    def before_member_hears(self, host: Host, message: Any) -> None:
        """The same for a member."""
        epoch = getattr(message, "epoch", None)
        member = host.member
        if member is None or epoch is None or epoch >= member.hello.epoch:
            return
        shadow, calls = shadow_of(member)
        shadow.tick()
        shadow.heard_at = shadow.now
        self.changes_nothing(shadow, calls, message, message)

    def changes_nothing(self, shadow: Any, calls: Calls, message: Any, *args: Any) -> None:
        before = known(shadow)
        calls.taken()
        shadow.heard(*args)
        made = [call for call in calls.taken() if call[0] != "wake"]
        is_same = known(shadow) == before and not made
        self.check(is_same, f"stale: {message} changed {before} to {known(shadow)}, {made}")

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
                frozen = frozen or (not self.sim.settings.returns and world[0] in self.newcomers)
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
            self.sim.at(after, lambda h=host, n=life: self.sim.of_life(h, n, "quiet", True))  # type: ignore[misc]
            if self.random.random() < 0.2:
                later = after + self.random.uniform(0, 9)
                self.sim.at(later, lambda h=host, n=life: self.sim.of_life(h, n, "quiet", False))  # type: ignore[misc]

    # Ends

    def exited(self, host: Host, status: int, cause: Cause | None) -> None:
        self.sim.say(f"{host.name}: exits with {status}, {cause}")
        self.check(host.workers is None, f"nothing left: {host.name} ends before its workers")
        host.exit = (status, cause)
        if cause and cause.kind == "absent" and cause.words.startswith("the hub"):
            self.sought(host)
            reachable = self.sim.ended - max(host.came, self.sim.began)  # a try is up to 6 s long
            late = self.sim.now - self.sim.began < 6.0  # a hub that comes at the last moment
            last = self.sim.now if self.sim.hub else self.sim.ended
            cuts = (*host.cuts, *self.sim.hosts[0].cuts)
            was_cut = any(until > last - 6.0 for _, until in cuts)
            missed = was_cut or (late if self.sim.hub else reachable < 6.0)
            self.check(
                missed or host.number in self.sim.faults.hurt | self.sim.faults.frozen,
                "an end: it found no hub",
            )
            self.sim.faults.hurt.add(host.number)
        self.exits.append((host.number, status, cause))
        self.sim.seen[f"exit {cause.kind if cause else 'well'}"] += 1

    def sought(self, host: Host) -> None:
        """It has looked for the hub as long as it should, by its own clock."""
        member, settings = host.member, self.sim.settings
        assert member
        limit = settings.return_s if member.hello.epoch else settings.join_s
        late = member.now - member.since - limit
        is_soon = late < 0 and member.hello.epoch > 0  # before, it ends where nobody listens
        self.check(
            late < 12 and not is_soon, f"waits: {host.name} sought the hub {late:.1f} s longer"
        )

    def at_the_end(self) -> None:
        for host in self.sim.hosts:
            if host.is_stuck:
                continue
            self.check(host.member is None, f"an end: {host.name} has none, {self.sim.state()}")
        sound = {n: (s, c) for n, s, c in self.exits if n not in self.sim.faults.hurt}
        self.check(len(set(sound.values())) <= 1, f"one end: {sound}")

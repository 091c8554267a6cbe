"""What must hold in a simulation; `Broken` is raised where it does not.

agree     every world that starts is one that all of its nodes were told alike, once
alone     no workers of two worlds run at once (but on a node whose launcher is frozen)
first     the failure that is reported was the first, as far as clocks can tell
one end   nodes that had no fault of their own end with one status and one cause
nothing left   no launcher ends before its workers
roll      what nodes say of a hang is compared once, when all have
budget    there are no more restarts than are allowed, and each start is counted
stay      a node keeps its node rank
no wait   nobody waits for a launcher of which the hub knows that it will not come
an end    everybody ends, in bounded time and after a bounded number of events
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from spawnlaunch.multinode.hub import ENDED, JOINING, RETURN_S, RUNNING, STACKS_S, STOPPING, Hub
from spawnlaunch.multinode.messages import FINISHED, READY, UNABLE, Order, Report
from spawnlaunch.outcome.failures import ABORT, CRASH, LATE_S, OWN, VICTIM, Cause

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.multinode.simulation import Host, Simulation


class Broken(AssertionError):
    """Something that must always hold did not."""


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
        return VICTIM if self.words else {-11: CRASH, -6: ABORT}.get(self.code, OWN)


def goes_before(one: Fact, other: Fact, error_s: float) -> bool:
    """Whether it may be the first though it is known from a later time."""
    late_s = LATE_S + error_s if one.kind == CRASH else 0.0
    return one.kind < other.kind and (one.was_dying or one.known - other.known <= late_s)


class Promises:
    """The record of all that began and ended, and what must hold for it."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.hubs = 0
        self.failures: dict[int, list[Fact]] = {}  # by epoch
        self.starts_: dict[tuple[int, int], dict[int, Order]] = {}  # by hub and epoch, by host
        self.exits: list[tuple[int, int, Cause | None]] = []
        self.returned: set[int] = set()  # hosts that came again since the last epoch
        self.missing: dict[int, float] = {}  # hosts that will not come, since when the hub knows it
        self.last_came: dict[int, object] = {}  # the connection of a host's last Report
        self.n_faults, self.last_port, self.n_compared = 0, 0, 0

    def check(self, holds: object, what: str) -> None:
        if not holds:
            raise Broken(f"at {self.sim.now:.4f}: {what}")

    # Starts

    def starts(self, host: Host) -> None:
        self.returned.add(host.number)
        if host.number == 0:
            self.hubs += 1
            self.missing.clear()
            self.failures.clear()

    def began(self, hub: Hub) -> None:
        """The hub begins an epoch: all are told one world."""
        settings, peers = self.sim.settings, [p for p in hub.peers.values() if p.epoch == hub.epoch]
        orders = [peer.start for peer in sorted(peers, key=lambda p: p.node_rank) if peer.start]
        one = orders[0]
        self.sim.say(f"hub: epoch {hub.epoch} of {one.nnodes} nodes, {one.world_size} ranks")
        ranks: list[int] = []
        of_role: dict[str, list[int]] = {}
        for node_rank, peer in enumerate(sorted(peers, key=lambda p: p.node_rank)):
            start = orders[node_rank]
            alike = start._replace(
                node_rank=one.node_rank, first_rank=one.first_rank, role_rank=one.role_rank,
                role_size=one.role_size, stacks=one.stacks,
            )  # fmt: skip
            self.check(alike == one, f"agree: {start} and {one}")
            self.check(start.node_rank == node_rank, f"agree: node ranks {orders}")
            nproc, role = peer.report.nproc, peer.report.role
            ranks += range(start.first_rank, start.first_rank + nproc)
            of_role.setdefault(role, []).extend(range(start.role_rank, start.role_rank + nproc))
            self.check(peer.report.state == READY, f"alone: {peer.report} is to start")
        self.check(ranks == list(range(one.world_size)), f"agree: ranks {ranks}")
        self.check(len(orders) == one.nnodes, f"agree: {one.nnodes} nodes, {len(orders)}")
        for role, within in of_role.items():
            self.check(within == list(range(len(within))), f"agree: of role {role} {within}")
        self.check(settings.least <= one.nnodes <= settings.most, "agree: enough nodes")
        self.check(one.restart == hub.epoch - 1, f"count: {one.restart} restarts")
        self.check(hub.used <= settings.max_restarts, f"budget: {hub.used}")
        self.check(one.master_port != self.last_port, "agree: a port of its own")
        world, before = (self.hubs, hub.epoch), self.starts_.get((self.hubs, hub.epoch - 1), {})
        self.starts_[world] = here = {}
        for peer in peers:
            number = int(peer.report.host.removeprefix("node"))
            assert peer.start
            here[number] = peer.start
            old = before.get(number)
            if old and old.node_rank < one.nnodes and number not in self.returned:
                self.check(old.node_rank == peer.node_rank, f"stay: {peer.report.host}")
        self.returned.clear()
        self.missing.clear()

    def launched(self, host: Host, order: Order) -> None:
        sim, world = self.sim, (self.hubs, order.epoch)
        known = self.starts_.get(world, {}).get(host.number)
        is_known = known and known._replace(stacks=order.stacks) == order
        if self.hubs > 1 and host.number in sim.faults.frozen:
            return  # a hub that is gone has ordered it meanwhile
        self.check(is_known, f"agree: {order}, {known}")
        self.check(host.workers is None, f"alone: {host.name} has workers already")
        self.last_port = order.master_port if order.node_rank == 0 else self.last_port
        for other in sim.hosts:
            if other.workers and other.workers.world != world:
                is_frozen = other.number in sim.faults.frozen or sim.faults.has_hub_jumped
                both = f"{world} begins, {other.name} runs {other.workers.world}"
                self.check(is_frozen, f"alone: {both}")

    # The hub

    def after_hub(self, hub: Hub, phase: str, epoch: int, n_again: int) -> None:
        self.sim.seen[f"hub {phase} -> {hub.phase}"] += 1
        if hub.epoch != epoch:
            self.check(hub.epoch == epoch + 1, "agree: epochs grow by one")
            self.began(hub)
        working = [peer.report for peer in hub.peers.values() if peer.epoch == hub.epoch]
        if hub.phase == STOPPING and not self.sim.faults.frozen:
            self.stops_in_time(hub)
        if phase == STOPPING and hub.phase in (JOINING, ENDED):
            are_idle = all(r.epoch == hub.epoch and r.state == READY for r in working)
            self.check(are_idle, f"alone: all have stopped {working}")
            cause = hub.cause
            if cause and (hub.phase == JOINING or cause.kind == "failure"):
                self.reported(cause)
        for cause in hub.again[n_again:]:
            self.sim.seen[f"again {cause.kind}"] += 1
            is_final = cause.kind == "failure" and cause.code in self.sim.settings.final
            self.check(not is_final, "final: this status is not tried again")
            self.n_faults += cause.kind in ("failure", "hang", "lost")
            most = self.sim.settings.max_restarts
            if not self.sim.settings.window_s and self.hubs == 1:
                self.check(self.n_faults <= most, f"budget: {self.n_faults} of {most}")
        if hub.phase == RUNNING:
            others = [p.report for p in hub.peers.values() if p.epoch != hub.epoch]
            newcomers = [r for r in others if r.state == READY and not r.leaving]
            is_ending = any(report.state == FINISHED for report in working)
            is_wanted = newcomers and hub.size < self.sim.settings.most and not is_ending
            self.check(not is_wanted, f"join: nobody takes {newcomers}")
            self.check(not hub.is_out_of_time, "timeout: it is over")
        if hub.phase == JOINING:
            self.while_joining(hub)
        if phase != ENDED and hub.phase == ENDED:
            self.sim.say(f"hub: ended with {hub.status}, {hub.cause}")
            self.sim.seen[f"end {hub.cause.kind if hub.cause else 'well'}"] += 1
        if (not epoch and hub.epoch) or (phase != ENDED and hub.phase == ENDED):
            self.sim.faults.met()

    def stops_in_time(self, hub: Hub) -> None:
        """Workers that are told to end do, on nodes that can be told."""
        grace_s = self.sim.settings.longest_grace_s
        is_reached = not any(host.cuts or not host.has_power for host in self.sim.hosts)
        is_late = hub.now - hub.since > 1.05 * grace_s + 8.0
        self.check(not (is_reached and is_late), f"stop: not all have stopped {hub.peers}")

    def while_joining(self, hub: Hub) -> None:
        """Nobody waits for launchers that will not come, nor longer than was said."""
        settings, faults = self.sim.settings, self.sim.faults
        if faults.has_hub_jumped or 0 in faults.frozen:
            return
        gone = sum(since + 0.2 < self.sim.now for since in self.missing.values())
        others = max(settings.total - gone, len(hub.peers))
        self.check(not gone or others >= settings.least, f"no wait: for {self.missing}")
        ready = [p for p in hub.peers.values() if p.report.state == READY and not p.report.leaving]
        is_short = len(ready) < settings.least
        waited_s = hub.now - hub.since
        self.check(not is_short or waited_s <= settings.join_s, f"waits: {waited_s:.1f} s")

    def comes(self, host: Host, report: Report) -> None:
        """The hub is about to read a Report."""
        hub, settings = self.sim.hub, self.sim.settings
        self.last_came[host.number] = host.connection
        comes_back = report.is_restarted or (hub and hub.epoch and settings.can_return)
        if report.state != UNABLE:
            self.missing.pop(host.number, None)
        elif hub and hub.phase == JOINING and not comes_back:
            self.missing[host.number] = self.sim.now

    def goes(self, host: Host, number: int, is_certain: bool) -> None:
        """The hub is about to hear that a connection has ended."""
        hub = self.sim.hub
        peer = hub.peers.get(number) if hub else None
        other = host.connection
        if other and other.number != number and other is self.last_came.get(host.number):
            return  # it has come again before that
        is_awaited = hub and is_certain and hub.phase == JOINING and not hub.epoch
        if is_awaited and peer and not (peer.report.is_restarted or peer.report.leaving):
            self.missing[host.number] = self.sim.now + RETURN_S

    def compared(self, hub: Hub | None, reports: Sequence[Any]) -> None:
        assert hub
        self.sim.seen["compared"] += 1
        working = [p for p in hub.peers.values() if p.epoch == hub.epoch]
        busy = [p for p in working if p.report.state not in (READY, FINISHED)]
        is_late = hub.now >= hub._asked_at + STACKS_S
        self.check(is_late or len(reports) == len(busy), "roll: not all have answered")
        self.check(all(report.epoch == hub.epoch for report in reports), "roll: of another epoch")
        hosts = [where.one for report in reports for where in report.where]
        self.check(len({*hosts}) == len(hosts), f"roll: one is called twice {hosts}")
        self.check(all(peer.report.is_silent for peer in busy), "roll: one writes")
        self.check(hub._stacks > self.n_compared or self.hubs > 1, "roll: it is called twice")
        self.n_compared = hub._stacks

    # The first failure

    def reported(self, cause: Cause) -> None:
        hub = self.sim.hub
        if cause.kind != "failure" or self.sim.faults.frozen or not hub or self.hubs > 1:
            return
        facts = self.failures.get(hub.epoch, [])
        mine = [fact for fact in facts if not self.is_known_late(fact)]
        named = [f for f in facts if (f"node{f.host}", f.rank) == (cause.host, cause.rank)]
        self.check(named, f"first: {cause} never happened")
        one = min(named, key=lambda fact: fact.known)
        if one.host in self.sim.faults.hurt:
            return
        error_s = 2.1 if self.sim.is_slow else 0.08
        own = [f for f in facts if f.kind != VICTIM and (f in mine or f is one)] or mine
        early = [f for f in own if f.known < one.known - error_s]
        early = [f for f in early if not goes_before(one, f, error_s)]
        self.check(not early, f"first: {cause}, {facts}")
        if one in mine:
            self.check(one in own, f"first: a victim, {cause}, {facts}")
            if not self.sim.is_slow:
                known = [fact for fact in own if fact.known < inf]
                self.is_truly_first(one, known, error_s, f"{cause}, {facts}")

    def is_truly_first(self, one: Fact, own: list[Fact], error_s: float, what: str) -> None:
        """Though the news of one that dies slowly are later; an abort may be another's fault."""
        first = min(own, key=lambda fact: fact.when)
        is_clear = all(first.when < f.when - error_s for f in own if f is not first)
        if is_clear and first.kind == CRASH and goes_before(first, one, -error_s):
            self.check(one.kind == CRASH, f"first: the crash, {what}")
        is_seen = first.was_dying or first.known < one.known - error_s
        if one.is_victim and one.kind == ABORT and is_seen and first.kind < ABORT:
            self.check(one is first, f"first: a victim that has aborted, {what}")

    def is_known_late(self, fact: Fact) -> bool:
        """What was said during a cut is heard after it, and seems to be younger than it is."""
        hosts = self.sim.hosts
        cuts = {*hosts[0].cuts, *hosts[fact.host].cuts} if fact.host else ()
        is_cut = any(since < fact.when + 4 and fact.when < until for since, until in cuts)
        return is_cut or fact.host in self.sim.faults.hurt

    # Ends

    def exited(self, host: Host, status: int, cause: Cause | None) -> None:
        self.sim.say(f"{host.name}: exits with {status}, {cause}")
        self.check(host.workers is None, f"nothing left: {host.name} ends before its workers")
        if cause and cause.kind == "absent" and cause.words.startswith("the hub"):
            self.sim.faults.hurt.add(host.number)
            self.sought(host)
        self.exits.append((host.number, status, cause))
        self.sim.seen[f"exit {cause.kind if cause else 'well'}"] += 1

    def sought(self, host: Host) -> None:
        """A launcher that has found no hub had none to find, for most of the time."""
        hub_host, faults = self.sim.hosts[0], self.sim.faults
        was_there = hub_host.hub and hub_host.started_at < self.sim.now - 8.0
        was_cut = any(until > self.sim.now - 8.0 for _, until in (*host.cuts, *hub_host.cuts))
        is_odd = {0, host.number} & faults.frozen or host.number in faults.hurt - {host.number}
        self.check(not was_there or was_cut or is_odd, f"an end: {host.name} found no hub")

    def at_the_end(self) -> None:
        for host in self.sim.hosts:
            self.check(host.is_stuck or not host.node, f"an end: {host.name} has none")
        sound = {n: (s, c) for n, s, c in self.exits if n not in self.sim.faults.hurt}
        self.check(len(set(sound.values())) <= 1, f"one end: {sound}")

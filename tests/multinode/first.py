"""Whether the failure that a simulated launch reports was the first."""

from __future__ import annotations

from math import inf
from signal import SIGABRT, SIGSEGV
from typing import TYPE_CHECKING

from spawnlaunch.outcome.failures import ABORT, CRASH, ERROR, LATE_S, VICTIM, Cause
from tests.multinode.hosts import Broken

if TYPE_CHECKING:
    from tests.multinode.simulation import Simulation


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
        return {-SIGSEGV: CRASH, -SIGABRT: ABORT}.get(self.code, ERROR)


def goes_before(one: Fact, other: Fact, error_s: float) -> bool:
    """Whether it may be the first though it is known from a later time."""
    late_s = LATE_S + error_s if one.kind == CRASH else 0.0
    return one.kind < other.kind and (one.was_dying or one.known - other.known <= late_s)


class First:
    """The failures of each world, and what must hold for the one that is reported."""

    def __init__(self, simulation: Simulation) -> None:
        self.sim = simulation
        self.failures: dict[tuple[int, int], list[Fact]] = {}

    def check(self, holds: object, what: str) -> None:
        if not holds:
            raise Broken(f"at {self.sim.now:.4f}: {what}")

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

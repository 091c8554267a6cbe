"""Faults that are put into the rules, each of which the simulation must find.

`python -m tests.multinode --mutants` prints by which seed.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.multinode.simulation import Simulation
from tests.support import edits


class Mutant(NamedTuple):
    """An expression or a statement of the rules, and what is there instead."""

    rule: str
    function: str
    before: str
    after: str

    @property
    def codes(self) -> edits.Codes:
        return edits.codes([edits.Edit(self.function, self.before, self.after)])


HUB, NODE = "multinode.hub:Hub", "multinode.node:Node"
MUTANTS = (
    Mutant("fence after a loss", f"{HUB}.lose",
           "self.fenced_until = max(self.fenced_until, now + fence_s)", "pass"),
    Mutant("a certain loss has a fence too", f"{HUB}.lose", "CERTAIN_S", "0.0"),
    Mutant("the fence has the grace in it", f"{HUB}.lose",
           "NOTICE_S + settings.longest_grace_s", "NOTICE_S"),
    Mutant("another epoch's failures are ignored", f"{HUB}.take",
           "peer.epoch == self.epoch == report.epoch", "True"),
    Mutant("all stop before others start", f"{HUB}._stop",
           "any((self._is_busy(p) or p.report.state == FINISHED for p in working))", "False"),
    Mutant("a node that has not heard of the epoch may still start", f"{HUB}._is_busy",
           "peer.report.epoch == self.epoch and peer.report.state in (READY, FINISHED)",
           "peer.report.state in (READY, FINISHED)"),
    Mutant("a lost hub ends workers", f"{NODE}._keep_or_halt", "self.stage == SEEKING", "False"),
    Mutant("the budget", "outcome.failures:used_after", "used < most", "used <= most"),
    Mutant("first by its time", f"{HUB}.take", "now - each.age_s", "now"),
    Mutant("all failures of an epoch are kept", f"{HUB}.take",
           "failures.kept(self.failures, failure)", "(failure,)"),
    Mutant("an abort is no victim by itself", "outcome.failures:Failure.order",
           "ABORT", "VICTIM"),
    Mutant("an abort does not go before an exit", "outcome.failures:Failure.order",
           "ABORT if code == -SIGABRT else OWN", "OWN"),
    Mutant("a crash goes before an exit", "outcome.failures:Failure.order",
           "code in CRASHES or (code == -SIGKILL and self.cause.oom)", "False"),
    Mutant("a crash after an exit does not", "outcome.failures:_goes_before",
           "failure.order < earliest.order and failure.began - late_s <= earliest.when",
           "failure.order < earliest.order"),
    Mutant("one that was dying may have been earlier", "outcome.failures:_goes_before",
           "failure.began", "failure.when"),
    Mutant("the earliest of a kind is kept", "outcome.failures:_is_later",
           "other.when <= one.when", "other.when >= one.when"),
    Mutant("each role has ranks of its own", "multinode.ranks:count_ranks",
           "sizes.get(role, 0)", "sum(sizes.values())"),
    Mutant("a time to join", f"{HUB}._name_absent",
           "self._is_past(until)", "False"),
    Mutant("a time to seek", f"{NODE}._seek", "self._is_past(self._since + self._join_s)",
           "False"),
    Mutant("an epoch is begun once", f"{NODE}.reconcile",
           "order.epoch > report.epoch and order.action == RUN", "order.action == RUN"),
    Mutant("a stop ends workers", f"{NODE}._keep_or_halt", "order.action in (STOP, END)",
           "order.action == END"),
    Mutant("a node that is stopped before it started says so", f"{NODE}.reconcile",
           "order.epoch > report.epoch or (order.action != RUN and report.state == FINISHED)",
           "order.action != RUN and report.state == FINISHED"),
    Mutant("a stop for those who are done", f"{NODE}.reconcile",
           "order.epoch > report.epoch or (order.action != RUN and report.state == FINISHED)",
           "order.epoch > report.epoch"),
    Mutant("one that comes to another hub knows no epoch", f"{NODE}._lose_hub",
           "self._change(epoch=0)", "pass"),
    Mutant("nodes of a hub before", f"{HUB}._is_time",
           "settings.may_replace_hub and (not self.epoch)", "False"),
    Mutant("the frozen are given up", f"{HUB}.reconcile",
           "now - p.heard_at > self.settings.dead_s", "False"),
    Mutant("nobody waits for a frozen hub", f"{NODE}._keep_in_touch",
           "self.stage == JOINED and self._is_past(self._heard_at + self._dead_s)", "False"),
    Mutant("the same launcher is there once", f"{HUB}._admit",
           "known.pop(report.who, None)", "None"),
    Mutant("not more than most", "multinode.ranks:choose_nodes", "most", "None"),
    Mutant("ranks without holes", "multinode.ranks:count_ranks", "peer.report.nproc", "1"),
    Mutant("enough nodes", f"{HUB}._is_enough", "len(self._ready()) >= self.settings.least",
           "True"),
    Mutant("signals reach all", f"{HUB}._run", "p.is_local or p.epoch == self.epoch", "False"),
    Mutant("well at the end", f"{HUB}._run", "not busy", "False"),
    Mutant("a port of its own", f"{NODE}.ended", "port", "self.report.port"),
    Mutant("told to end while it stops", f"{HUB}._can_go_on",
           "cause.kind == 'signal' or leaving", "cause.kind == 'signal'"),
    Mutant("a newcomer restarts", f"{HUB}._run",
           "newcomers and self.size < self.settings.most and (not done)", "False"),
    Mutant("silence of all", f"{HUB}._look_for_hang",
           "not all((peer.report.is_silent for peer in busy))",
           "not any((peer.report.is_silent for peer in busy))"),
    Mutant("the roll is called once", f"{HUB}._look_for_hang",
           "self._is_compared = True", "pass"),
    Mutant("all have answered", f"{HUB}._look_for_hang",
           "len(answers) == len(busy)", "answers"),
    Mutant("node ranks stay", "multinode.ranks:choose_nodes",
           "0 <= peer.node_rank < len(order)", "False"),
    Mutant("a final status", "outcome.failures:used_after", "cause.status() in final", "False"),
    Mutant("the time of the launch", f"{HUB}._run", "self.is_out_of_time", "False"),
    Mutant("nobody waits for one that cannot take part", f"{HUB}._count_out",
           "self._miss(report, cause, self.now)", "pass"),
    Mutant("nobody waits for one that has gone", f"{HUB}.lose",
           "self._miss(report, _lost(report.host), now + RETURN_S)", "pass"),
    Mutant("one that is told to end, and goes, has said so", f"{HUB}.lose",
           "self._miss(report, _signal(peer), now)", "pass"),
    Mutant("one that is cut off is waited for", f"{HUB}._is_one_cut_off",
           "self.now - peer.heard_at > mute_s or not self._is_past(peer.unsure_until)",
           "False"),
    Mutant("those who come late hear the end", f"{HUB}._end", "self._await_late()", "pass"),
)  # fmt: skip


def found_by(seeds: range, mutant: Mutant) -> int | None:
    """The first seed that finds a fault in the rules."""
    with edits.instead(mutant.codes):
        for seed in seeds:
            try:
                Simulation(seed).run()
            except (AssertionError, ValueError, IndexError, KeyError, TypeError):
                return seed
    return None

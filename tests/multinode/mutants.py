"""Faults that are put into the rules, each of which the simulation must find by its seed.

After a change of simulation or rules, `python -m tests.multinode --mutants` prints the seeds.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.support import edits


class Mutant(NamedTuple):
    """An expression or a statement of the rules, and what is there instead."""

    rule: str
    function: str
    before: str
    after: str
    found: int  # by this seed

    @property
    def codes(self) -> edits.Codes:
        return edits.codes([edits.Edit(self.function, self.before, self.after)])


HUB, NODE = "multinode.hub:Hub", "multinode.node:Node"
MUTANTS = (
    Mutant("fence after a loss", f"{HUB}.lose",
           "self.fenced_until = max(self.fenced_until, now + fence_s)", "pass", 0),
    Mutant("a certain loss has a fence too", f"{HUB}.lose", "CERTAIN_S", "0.0", 0),
    Mutant("the fence has the grace in it", f"{HUB}.lose",
           "NOTICE_S + settings.longest_grace_s", "NOTICE_S", 0),
    Mutant("another epoch's failures are ignored", f"{HUB}.take",
           "peer.epoch == self.epoch == report.epoch", "True", 0),
    Mutant("all stop before others start", f"{HUB}._stop",
           "any((self._is_busy(p) or p.report.state == FINISHED for p in working))", "False", 0),
    Mutant("a node that has not heard of the epoch may still start", f"{HUB}._is_busy",
           "peer.report.epoch == self.epoch and peer.report.state in (READY, FINISHED)",
           "peer.report.state in (READY, FINISHED)", 0),
    Mutant("a lost hub ends workers", f"{NODE}._keep_or_halt", "self.stage == SEEKING", "False", 0),
    Mutant("who had workers does not come back", f"{NODE}._lose_hub",
           "has_workers or self.report.state == FINISHED", "False", 0),
    Mutant("the budget", "outcome.failures:used_after", "used < most", "used <= most", 0),
    Mutant("first by its time", f"{HUB}.take", "now - each.age_s", "now", 0),
    Mutant("all failures of an epoch are kept", f"{HUB}.take",
           "failures.kept(self.failures, failure)", "(failure,)", 0),
    Mutant("an abort is no victim by itself", "outcome.failures:Failure.order",
           "ABORT", "VICTIM", 0),
    Mutant("an abort does not go before an exit", "outcome.failures:Failure.order",
           "ABORT if code == -SIGABRT else OWN", "OWN", 0),
    Mutant("a crash goes before an exit", "outcome.failures:Failure.order",
           "code in CRASHES or (code == -SIGKILL and self.cause.oom)", "False", 0),
    Mutant("a crash after an exit does not", "outcome.failures:_goes_before",
           "failure.order < earliest.order and failure.began - late_s <= earliest.when",
           "failure.order < earliest.order", 0),
    Mutant("one that was dying may have been earlier", "outcome.failures:_goes_before",
           "failure.began", "failure.when", 0),
    Mutant("the earliest of a kind is kept", "outcome.failures:_is_later",
           "other.when <= one.when", "other.when >= one.when", 0),
    Mutant("each role has ranks of its own", "multinode.ranks:count_ranks",
           "sizes.get(role, 0)", "sum(sizes.values())", 0),
    Mutant("a time to join", f"{HUB}._name_absent",
           "self._is_past(self.since + settings.join_s)", "False", 0),
    Mutant("a time to seek", f"{NODE}._seek", "self._is_past(self._since + self._join_s)",
           "False", 0),
    Mutant("an epoch is begun once", f"{NODE}.reconcile",
           "order.epoch > report.epoch and order.action == RUN", "order.action == RUN", 0),
    Mutant("a stop ends workers", f"{NODE}._keep_or_halt", "order.action in (STOP, END)",
           "order.action == END", 0),
    Mutant("a node that is stopped before it started says so", f"{NODE}.reconcile",
           "order.epoch > report.epoch or (order.action != RUN and report.state == FINISHED)",
           "order.action != RUN and report.state == FINISHED", 0),
    Mutant("a stop for those who are done", f"{NODE}.reconcile",
           "order.epoch > report.epoch or (order.action != RUN and report.state == FINISHED)",
           "order.epoch > report.epoch", 0),
    Mutant("one that comes to another hub knows no epoch", f"{NODE}._lose_hub",
           "self._change(epoch=0)", "pass", 0),
    Mutant("nodes of a hub before", f"{HUB}._is_time",
           "settings.may_replace_hub and (not self.epoch)", "False", 0),
    Mutant("the frozen are given up", f"{HUB}.reconcile",
           "now - p.heard_at > self.settings.dead_s", "False", 0),
    Mutant("nobody waits for a frozen hub", f"{NODE}._keep_in_touch",
           "self.stage == JOINED and self._is_past(self._heard_at + self._dead_s)", "False", 0),
    Mutant("the same launcher is there once", f"{HUB}._admit",
           "each.report.who == report.who", "False", 0),
    Mutant("not more than most", "multinode.ranks:choose_nodes", "most", "None", 0),
    Mutant("ranks without holes", "multinode.ranks:count_ranks", "peer.report.nproc", "1", 0),
    Mutant("enough nodes", f"{HUB}._is_enough", "len(self._ready()) >= self.settings.least",
           "True", 0),
    Mutant("signals reach all", f"{HUB}._run", "p.is_local or p.epoch == self.epoch", "False", 0),
    Mutant("well at the end", f"{HUB}._run", "not busy", "False", 0),
    Mutant("a port of its own", f"{NODE}.ended", "port", "self.report.port", 0),
    Mutant("told to end while it stops", f"{HUB}._can_go_on",
           "cause.kind == 'signal' or leaving", "cause.kind == 'signal'", 0),
    Mutant("a newcomer restarts", f"{HUB}._run",
           "newcomers and self.size < self.settings.most and (not done)", "False", 0),
    Mutant("silence of all", f"{HUB}._look_for_hang",
           "not all((peer.report.is_silent for peer in busy))",
           "not any((peer.report.is_silent for peer in busy))", 0),
    Mutant("the roll is called once", f"{HUB}._look_for_hang",
           "self._is_compared = True", "pass", 0),
    Mutant("all have answered", f"{HUB}._look_for_hang",
           "len(answers) == len(busy)", "answers", 0),
    Mutant("node ranks stay", "multinode.ranks:choose_nodes",
           "0 <= peer.node_rank < len(order)", "False", 0),
    Mutant("a final status", "outcome.failures:used_after", "cause.status() in final", "False", 0),
    Mutant("the time of the launch", f"{HUB}._run", "self.is_out_of_time", "False", 0),
    Mutant("nobody waits for one that cannot take part", f"{HUB}._count_out",
           "self._miss(report, cause, self.now)", "pass", 0),
    Mutant("nobody waits for one that has gone", f"{HUB}.lose",
           "self._miss(report, _lost(report.host), now + RETURN_S)", "pass", 0),
    Mutant("one that is told to end, and goes, has said so", f"{HUB}.lose",
           "self._miss(report, _signal(peer), now)", "pass", 0),
    Mutant("one that is cut off is waited for", f"{HUB}._is_one_cut_off",
           "self.now - peer.heard_at > mute_s or not self._is_past(peer.unsure_until)",
           "False", 0),
    Mutant("those who come late hear the end", f"{HUB}._end", "self._await_late()", "pass", 0),
)  # fmt: skip

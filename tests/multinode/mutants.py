"""Faults that are put into the rules, each of which the simulation must find by its seed.

After a change of the simulation or of the rules, `python -m tests.multinode --mutants` prints the
seeds.
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


MUTANTS = (
    Mutant("fence after a loss", "multinode.hub:Hub._lose",
           "self.fences.set(fence, self.now + wait_s)",
           "pass", 1624),
    Mutant("a certain loss has a fence too", "multinode.hub:Hub._lose", "CERTAIN_S", "0.0", 3679),
    Mutant("the fence has the grace in it", "multinode.hub:Hub._lose",
           "phases.NOTICE_S + self.settings.longest_grace_s", "phases.NOTICE_S", 2784),
    Mutant("another epoch's word is ignored", "multinode.hub:Hub.received",
           "message.epoch == self.epoch",
           "True", 41),
    Mutant("epochs begin above what was seen", "multinode.phases:Phases._begin_epoch",
           "max(self.epoch, self.floor)", "self.epoch", 50),
    Mutant("all stop before others start", "multinode.phases:Phases._go_on_or_end",
           "self.nodes.of(roster.BUSY) or self.nodes.of(roster.DONE)", "False", 23),
    Mutant("a lost hub fences", "multinode.member:Member._fence", "before == RUNNING", "False",
           239),
    Mutant("the budget", "outcome.failures:used_after", "used < most", "used <= most", 63),
    Mutant("first by its time", "multinode.hub:Hub._of_workers", "self.now - message.age_s",
           "self.now", 416),
    Mutant("an abort is no victim by itself", "outcome.failures:Failure.order",
           "ABORT", "VICTIM", 288),
    Mutant("an abort does not go before an exit", "outcome.failures:Failure.order",
           "ABORT if code == -SIGABRT else ERROR", "ERROR", 2743),
    Mutant("a crash goes before an exit", "outcome.failures:Failure.order",
           "code in CRASHES or (code == -SIGKILL and self.cause.oom)", "False", 3572),
    Mutant("a crash after an exit does not", "outcome.failures:_goes_before",
           "failure.order < earliest.order and failure.began - late_s <= earliest.when",
           "failure.order < earliest.order", 416),
    Mutant("one that was dying may have been earlier", "outcome.failures:_goes_before",
           "failure.began", "failure.when", 2743),
    Mutant("the earliest of a kind is kept", "outcome.failures:_is_later",
           "other.when <= failure.when", "other.when >= failure.when", 818),
    Mutant("each role has ranks of its own", "multinode.roster:roles", "sizes.get(hello.role, 0)",
           "sum(sizes.values())", 0),
    Mutant("a time to join", "multinode.phases:Phases._name_not_yet_connected",
           "self.now >= self.since + limit_s", "False", 20),
    Mutant("a time to seek", "multinode.member:Member._seek_on",
           "self.now >= self.since + self._seeks_s", "False", 3),
    Mutant("a start is begun once, where nothing runs", "multinode.member:Member._of_start",
           "self.state == JOINED and start.epoch > self.hello.epoch", "True", 6),
    Mutant("stale stops", "multinode.member:Member._of_stop", "stop.epoch != self.hello.epoch",
           "False", 41),
    Mutant("orphans of another hub", "multinode.phases:Phases._is_time",
           "not are_all_back and self.now < self._safe_at", "False", 50),
    Mutant("the frozen are given up", "multinode.hub:Hub._follow",
           "self.nodes.dead.due(self.now)", "()", 36),
    Mutant("a clock that jumps", "multinode.rules:Rules._look_at_clock",
           "max(0.0, passed - STRIDE_S) + min(0.0, passed)", "0.0", 75),
    Mutant("not more than most", "multinode.roster:chosen", "most", "None", 1),
    Mutant("ranks without holes", "multinode.roster:first_ranks", "nodes[conn].hello.nproc", "1",
           0),
    Mutant("enough nodes", "multinode.phases:Phases._is_enough", "count >= self.settings.least",
           "True", 8),
    Mutant("signals reach all", "multinode.hub:Hub._signalled",
           "self.phase == phases.RUNNING and (node.state != roster.IDLE or node.is_local)",
           "False", 105),
    Mutant("done at the end", "multinode.phases:Phases._run",
           "not nodes.of(roster.BUSY)", "False", 7),
    Mutant("a stop for those who are done", "multinode.member:Member._of_stop",
           "self.state == DONE",
           "False", 99),
    Mutant("a port of its own", "multinode.hub:Hub._of_workers",
           "node.hello._replace(port=message.port)",
           "node.hello", 7),
    Mutant("told to end while it stops", "multinode.phases:Phases._can_go_on",
           "cause.kind == 'signal' or leaving", "cause.kind == 'signal'", 1640),
    Mutant("a newcomer restarts", "multinode.phases:Phases._run",
           "newcomers and self.size < self.settings.most and (not nodes.of(roster.DONE))",
           "False", 7),
    Mutant("silence of all", "multinode.phases:Phases._look_for_hang",
           "len(self.nodes.of(roster.SILENT)) < len(busy)",
           "not self.nodes.of(roster.SILENT)", 76),
    Mutant("one who talks again", "multinode.hub:Hub._of_workers",
           "self.stacks_at = None", "pass", 155),
    Mutant("the roll is called once", "multinode.phases:Phases._look_for_hang",
           "not self._is_compared", "True", 241),
    Mutant("all have told", "multinode.phases:Phases._look_for_hang",
           "len(self.nodes.of(roster.STACKED)) == len(busy)",
           "self.nodes.of(roster.STACKED)", 117),
    Mutant("what was told before it was asked counts no more",
           "multinode.phases:Phases._look_for_hang",
           "self.nodes.change(conn, has_shown_stacks=False)", "pass", 671),
    Mutant("node ranks stay", "multinode.roster:chosen", "0 <= here[conn].node_rank < len(order)",
           "False",
           7),
    Mutant("a final status", "outcome.failures:used_after",
           "cause.status() in final", "False", 151),
    Mutant("the time of the launch", "multinode.phases:Phases._is_out_of_time",
           "self.time >= self.began + limit_s", "False", 22),
    Mutant("the time of the launch does not stand", "multinode.phases:Phases._is_out_of_time",
           "self.time", "self.now", 123),
    Mutant("those who are lost come back", "multinode.phases:Phases._can_go_on",
           "self._is_enough() or settings.return_s > 0", "self._is_enough()", 84),
    Mutant("where nobody comes back nobody waits", "multinode.phases:Phases._can_go_on",
           "self._is_enough() or settings.return_s > 0", "True", 35),
    Mutant("the lost are waited for as long as was said", "multinode.phases:Phases._limit_s",
           "settings.return_s if self.floor and settings.return_s else settings.join_s",
           "settings.join_s", 188),
    Mutant("the hub is sought as long as was said", "multinode.member:Member._seeks_s",
           "self._hub_settings.return_s if self.hello.epoch else self._join_s",
           "self._join_s", 587),
    Mutant("the budget goes on with another hub", "multinode.hub:Hub._learn",
           "max(self.used, hello.used)", "self.used", 691),
    Mutant("a lost hub is a restart", "multinode.phases:Phases._begin_epoch",
           "self.epoch == 0 and self.floor", "False", 50),
    Mutant("the hub has no beat of a frozen launcher", "multinode.member:Member._keep_in_touch",
           "self.now >= self.last_message_at + self._hub_settings.dead_s", "False", 809),
)  # fmt: skip

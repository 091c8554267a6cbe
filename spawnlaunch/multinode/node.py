"""A node's launcher: what it does by the orders of the hub.

SEEKING   it has no hub: connects to the endpoint, again and again
JOINED    the hub has answered its Report
LEFT      it has its exit status

Events on this node and orders of the hub change what is known; `reconcile` acts on the change.
It closes its connection only when no workers run: so its end proves to the hub that none do.
"""

from __future__ import annotations

from math import inf

from spawnlaunch.base import errors
from spawnlaunch.multinode import words
from spawnlaunch.multinode.messages import (
    END,
    FINISHED,
    READY,
    RUN,
    RUNNING,
    STOP,
    STOPPING,
    WAIT,
    Failed,
    Order,
    Report,
)
from spawnlaunch.outcome import failures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from spawnlaunch.multinode.messages import Reached, Where

    class HubLink(Protocol):
        """The connection to the hub."""

        def connect(self) -> None: ...
        def say(self, report: Report | None) -> None:
            """Send a Report; None: a beat, which the hub answers."""

        def close(self) -> None: ...

    class Launcher(Protocol):
        """The actions of a launcher that its node's rules call."""

        def launch(self, order: Order) -> None:
            """Start the workers of an epoch."""

        def halt(self, cause: failures.Cause, grace_s: float) -> None:
            """End the workers: SIGTERM, and SIGKILL after the grace; then call `Node.ended`."""

        def show_stacks(self) -> None:
            """Show the workers' stacks; then call `Node.show`."""

        def tell(self, line: str) -> None:
            """Print a line, unless the hub of this node prints it."""

        def exit(self, status: int, cause: failures.Cause | None) -> None:
            """End the launcher with this status."""


SEEKING, JOINED, LEFT = "seeking", "joined", "left"

TURN_S = 5.0
TELL_S = 10.0  # between two lines that it seeks the hub
WORD_S = 5.0  # in which a launcher tries to tell the hub of its signal, before it ends
SOON_S, RARELY_S = 0.05, 1.0  # between attempts to connect: at first, at most


class Node:
    """The decisions of one node's launcher."""

    def __init__(
        self,
        report: Report,
        join_s: float,
        beat_s: float,
        dead_s: float,
        link: HubLink,
        launcher: Launcher,
        now: float,
        place: str = "its place",
    ) -> None:
        """Set up a node.

        `join_s`: seconds to find the hub; `beat_s`: between two beats; `dead_s`: without any word
        of the hub; `place`: where the hub is to be.
        """
        self.report, self._place = report, place
        self._join_s, self._beat_s, self._dead_s = join_s, beat_s, dead_s
        self._link, self._launcher, self._now = link, launcher, now
        self.stage = SEEKING
        self.order = Order(WAIT)  # the hub's last one
        self._is_linked = self._is_connecting = False
        self._since, self._retry_at, self._wait_s = now, now, SOON_S
        self._name_at = now + TELL_S  # when to print that it seeks the hub
        self._why, self._is_refused, self._is_nobody = "", False, False  # no connection
        self._had_hub = False  # once, that was lost then
        self._had_workers = False  # as the hub was lost
        self._grace_s = 0.0  # as the workers were told to end
        self._failures: tuple[failures.Failure, ...] = ()
        self._sent: Report | None = None  # on this connection
        self._heard_at, self._beat_at, self._asked_at = now, now, -inf
        self._trip_s = inf  # the shortest round trip
        self._left_at = inf  # when it got a signal to end, or lost the hub after that
        self._shown = 0  # the last request for stacks that was carried out
        self._due = inf

    # The link

    def linked(self, now: float) -> None:
        """Note a connection on which both ends have proved themselves."""
        self._is_linked, self._is_connecting, self._sent = True, False, None
        self._heard_at, self._beat_at, self._asked_at = now, -inf, -inf

    def unlinked(
        self, now: float, why: str = "", is_final: bool = False, is_nobody: bool = False
    ) -> None:
        """Note that a connection has failed or ended.

        `is_final`: the other end has another token or version, so that a further attempt is
        useless. `is_nobody`: the hub's machine answers, and no hub runs there.
        """
        self._now = now
        self._is_refused, self._is_nobody, self._why = is_final, is_nobody, why
        if self.stage == JOINED:
            self._lose_hub()
        elif self._is_linked:  # the hub is just ending
            self._retry_at = now + RARELY_S
        else:
            self._retry_at = now + self._wait_s
            self._wait_s = min(2 * self._wait_s, RARELY_S)
        self._is_linked = self._is_connecting = False

    def heard(self, order: Order | None, now: float) -> None:
        """Take an order of the hub; None: its answer to a beat."""
        self._heard_at = now
        if order is not None:
            if order.note and order.note != self.order.note:
                self._launcher.tell(order.note)
            self.order, self.stage = order, JOINED
        elif self._asked_at > -inf:
            self._trip_s = min(self._trip_s, now - self._asked_at)
            self._asked_at = -inf

    def _lose_hub(self) -> None:
        has_workers = self.report.state in (RUNNING, STOPPING)
        more = "is lost: ending the workers" if has_workers else "is out of reach: trying again"
        if self.order.action != END:
            self._launcher.tell(f"the hub {more}")
            self.order = Order(WAIT, grace_s=self.order.grace_s)
            self._change(epoch=0)  # else it would not heed a hub that knows no epoch
        self.stage, self._had_hub = SEEKING, True
        self._had_workers = has_workers or self.report.state == FINISHED
        self._since = self._left_at = self._retry_at = self._now
        self._name_at = self._now + TELL_S
        self._wait_s = SOON_S

    # Events on this node

    def _change(self, **fields: object) -> None:
        self.report = self.report._replace(**fields)  # type: ignore[arg-type]

    def signalled(self, number: int, now: float) -> None:
        """Note a signal to this launcher that ends the launch; the hub decides for all nodes."""
        is_again = self.report.leaving > 0
        self._change(leaving=self.report.leaving or number, is_hurried=is_again)
        self._left_at = self._retry_at = now

    def failed(self, failure: failures.Failure) -> None:
        """Note that a worker has failed by itself; the launcher is ending the others."""
        if self.report.state in (RUNNING, STOPPING):
            self._failures = failures.kept(self._failures, failure)
            self._change(state=STOPPING)

    def ended(self, is_well: bool, port: int, ends: tuple[tuple[int, int], ...] = ()) -> None:
        """Note that no worker runs any more, and a free port is held for others.

        `is_well`: all have ended with 0, and no launcher or user ended them.
        """
        is_finished = is_well and self.report.state == RUNNING
        self._change(state=FINISHED if is_finished else READY, port=port, ends=ends)

    def quiet(self, is_silent: bool) -> None:
        """Note that all workers are silent, or that one writes again."""
        self._change(is_silent=is_silent)

    def show(self, where: tuple[Where, ...] = (), reached: tuple[Reached, ...] = ()) -> None:
        """Note that the stacks of all workers were shown, and what they show."""
        self._change(stacks=self._shown, where=where, reached=reached)

    # What follows

    def reconcile(self, now: float) -> float:
        """Act on the difference of order and node; return when to do so again at the latest."""
        self._now, self._due = now, now + TURN_S
        order, report = self.order, self.report
        has_workers = report.state in (RUNNING, STOPPING)
        if self.stage == LEFT:
            return inf
        if has_workers:
            self._keep_or_halt()
        elif order.action == END:
            self._leave(order.status, order.cause)
        elif self.stage == SEEKING:
            self._seek()
        elif order.epoch > report.epoch and order.action == RUN:
            self._failures, self._grace_s, self._shown = (), inf, order.stacks
            self._change(
                state=RUNNING, epoch=order.epoch, ends=(), is_silent=False, where=(), reached=(),
                stacks=order.stacks,
            )  # fmt: skip
            self._launcher.launch(order)
        elif order.epoch > report.epoch or (order.action != RUN and report.state == FINISHED):
            self._change(state=READY, epoch=order.epoch)
        if self._is_linked:
            self._keep_in_touch()
        return self._due

    def _keep_or_halt(self) -> None:
        """End the workers where there is a reason, once; without any grace also later."""
        order, report = self.order, self.report
        cause, grace_s = None, order.grace_s
        if report.leaving:
            cause = failures.Cause("signal", report.host, code=-report.leaving)
        elif order.action in (STOP, END):
            cause = order.cause or failures.Cause("lost")
        elif self.stage == SEEKING:
            cause = failures.Cause("lost", words="the hub")
        if report.is_hurried:
            grace_s = 0.0
        if cause and (self._grace_s == inf or (grace_s == 0.0 and self._grace_s > 0.0)):
            self._grace_s = grace_s
            self._change(state=STOPPING)
            self._launcher.halt(cause, grace_s)
        elif order.action == RUN and order.stacks > self._shown and report.state == RUNNING:
            self._shown = order.stacks
            self._launcher.show_stacks()

    def _seek(self) -> None:
        """Connect to the hub, or give up, where no worker runs."""
        report, lost = self.report, failures.Cause("lost", words="the hub")
        has_told = report.is_hurried or self._is_past(self._left_at + WORD_S)
        if self._is_refused:
            self._leave(errors.WRONG_USE, failures.Cause("refused", words=self._why))
        elif report.leaving and (self._had_workers or has_told):
            signal = failures.Cause("signal", report.host, code=-report.leaving)
            self._leave(128 + report.leaving, signal)
        elif self._had_workers or (self._had_hub and self._is_nobody and not report.is_restarted):
            self._leave(failures.LOST, lost)
        elif self._is_past(self._since + self._join_s):  # linked, too: a frozen hub accepts
            why = f" ({self._why})" if self._why else ""
            absent = failures.Cause("absent", words=f"the hub at {self._place}{why}")
            self._leave(failures.LOST, lost if self._had_hub else absent)
        elif not (self._is_linked or self._is_connecting) and self._is_past(self._retry_at):
            self._is_connecting = True
            self._link.connect()
        if self.stage == SEEKING and self._is_past(self._name_at):
            self._name_at = self._now + TELL_S
            left_s = self._since + self._join_s - self._now
            self._launcher.tell(words.waiting("the hub", self._place, left_s))

    def _keep_in_touch(self) -> None:
        """Send the hub the Report where it has changed, and a beat now and then."""
        if self.stage == JOINED and self._is_past(self._heard_at + self._dead_s):
            self._link.close()
            self.unlinked(self._now, "no answer")
            self._due = self._now
            return
        if self.report is not self._sent:
            self._sent = self.report
            self._link.say(self.report._replace(failures=self._aged_failures()))
        if self._asked_at == -inf and self._is_past(self._beat_at + self._beat_s):
            self._beat_at = self._asked_at = self._now
            self._link.say(None)

    def _aged_failures(self) -> tuple[Failed, ...]:
        """The failures with their ages as the hub reads them, half a round trip later."""
        way_s = self._trip_s / 2 if self._trip_s < inf else 0.0
        return tuple(
            # A crash takes time, and the launcher that learns of it is half a round trip away.
            Failed(one.cause, max(0.0, self._now - one.when) + way_s,
                   one.early_s + way_s * (one.cause.code in failures.CRASHES))
            for one in self._failures
        )  # fmt: skip

    def _leave(self, status: int, cause: failures.Cause | None) -> None:
        if self._is_linked:
            self._keep_in_touch()
        self._link.close()
        self.stage, self._is_linked = LEFT, False
        self._launcher.exit(status, cause)

    def _is_past(self, when: float) -> bool:
        """Whether a time has come; if not, `reconcile` is called again then."""
        if self._now < when:
            self._due = min(self._due, when)
        return self._now >= when

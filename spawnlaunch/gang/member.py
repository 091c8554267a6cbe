"""A member: one node's launcher, as far as the gang goes.

    SEEKING   it has no hub: connects to the endpoint, again and again
    GREETING  it has said hello
    JOINED    it is ready for workers
    RUNNING   its workers run
    DONE      its workers have all ended with 0; others' may run
    STOPPING  its workers were told to end
    FENCED    the hub is lost: its workers were told to end, lest the hub begin without it
    ENDED     it has its exit status

The link to the hub and the launcher tell it what happens, and it calls them. A link is closed only
when no workers run: so its end is a certain sign of that for the hub.
"""

from __future__ import annotations

from spawnlaunch.base import errors
from spawnlaunch.gang import messages, rules
from spawnlaunch.gang.words import differing, returns
from spawnlaunch.outcome import failures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Protocol

    class HubLink(Protocol):
        """The connection to the hub."""

        def connect(self) -> None: ...
        def hurry(self) -> None: ...
        def say(self, message: messages.ToHub) -> None: ...
        def close(self) -> None: ...

    class Launcher(Protocol):
        """What a launcher does for the gang."""

        def launch(self, start: messages.Start) -> None:
            """Start the workers."""

        def halt(self, cause: failures.Cause, grace_s: float) -> None:
            """End them: SIGTERM, and SIGKILL after the grace. It ends with `workers_ended`."""

        def show_stacks(self) -> None:
            """Show where they are. It ends with `stacks_shown`."""

        def tell(self, line: str) -> None:
            """Tell the user, where the hub is not here and does."""

        def await_hub(self, limit_s: float) -> None:
            """The hub is lost, and has so many seconds to come back."""

        def exit(self, status: int, cause: failures.Cause | None) -> None:
            """End."""


SEEKING, GREETING, JOINED, RUNNING = "seeking", "greeting", "joined", "running"
DONE, STOPPING, FENCED, ENDED = "done", "stopping", "fenced", "ended"

NEVER = float("inf")
WORD_S = 5.0  # for a hub to hear from a launcher that it was told to end
SOON_S, RARELY_S = 0.05, 1.0  # until the next attempt to connect: first, at most


class Member(rules.Rules):
    """A launcher, as far as decisions go."""

    def __init__(
        self,
        hello: messages.Hello,
        join_s: float,
        link: HubLink,
        launcher: Launcher,
        clock: Callable[[], float],
        wake: Callable[[float | None], None],
        place: str = "",
    ) -> None:
        """`join_s` is for the first hub to be found; `place` is where it is, in words."""
        super().__init__(clock, wake)
        self.hello = hello  # as it would be said now
        self._join_s, self.link, self.launcher, self._place = join_s, link, launcher, place
        self.state = SEEKING
        self._rules = messages.Welcome()  # of the hub
        self.since = NEVER  # when it began to seek
        self._retry = NEVER  # when to connect next, if it is not connecting
        self._wait_s, self._why = SOON_S, ""  # of the last attempt: why it found no hub
        self.heard_at = 0.0  # when, last
        self._beat, self._number = 0.0, 0  # the last one that was sent: when, and which
        self._trip_s = 0.0  # the least round trip
        self.leaving = 0  # the signal that it got
        self._left = 0.0  # when, or when it had a hub to tell
        self.cause: failures.Cause | None = None
        self._end: messages.End | None = None  # told while workers ran
        self._is_silent = False
        self._outcomes: tuple[tuple[int, int], ...] = ()  # of workers that have ended with 0

    def _follow(self, rule: Callable[[], None]) -> None:
        if self.state != ENDED:
            rule()
        if self.state in (SEEKING, GREETING):
            self._seek_on()
        elif self.state in (JOINED, RUNNING, DONE, STOPPING):
            self._keep_in_touch()

    @property
    def is_over(self) -> bool:
        return self.state == ENDED

    def _times(self) -> Iterable[float]:
        if self.state in (SEEKING, GREETING):
            yield self._retry
            if self.leaving and self.state == GREETING:
                yield self._left + WORD_S
        elif self.state != FENCED:
            yield self._beat + self._rules.beat_s
            yield self.heard_at + self._rules.dead_s

    def _exit(self, status: int, cause: failures.Cause | None) -> None:
        self.link.close()
        self.state, self.cause = ENDED, cause
        self.launcher.exit(status, cause)

    def _leave(self) -> None:
        """End by the signal that this launcher got."""
        self._exit(
            128 + self.leaving, failures.Cause("signal", self.hello.host, code=-self.leaving)
        )

    def _stop(self, cause: failures.Cause, grace_s: float) -> None:
        self.state = STOPPING
        self.launcher.halt(cause, grace_s)

    # The link

    @rules.event
    def begin(self) -> None:
        """The launcher is ready for workers."""
        self._seek()

    @rules.event
    def linked(self) -> None:
        """The connection to the hub is there, and both ends have proved what they are."""
        self.link.say(self.hello)
        self.state = GREETING
        self.heard_at = self._beat = self._left = self.now

    @rules.event
    def unlinked(self, why: str = "", is_final: bool = False, is_nobody: bool = False) -> None:
        """There is no connection, or it has ended.

        Final: of another token or version, so that to try again is no use. Nobody: the hub's
        machine answers, and no hub is there.
        """
        self._why = why and f" ({why})"
        if is_final:
            self._exit(errors.WRONG_USE, failures.Cause("refused", words=why))
        elif self.state == SEEKING:
            self._not_found(is_nobody)
        elif self.state == GREETING:  # a hub that goes as it is reached, or that has refused us
            self.state, self._retry = SEEKING, self.now + RARELY_S
        elif self.state != FENCED:
            self._fence()

    def _not_found(self, is_nobody: bool) -> None:
        may_return = self._rules.return_s > 0 if self.hello.epoch else self._rules.returns
        if self.leaving and self.now >= self._left + WORD_S:  # there is nobody to tell
            self._leave()
        elif is_nobody and self.cause and not may_return:  # it has ended
            self._exit(failures.LOST, self.cause)
        else:
            self._retry = self.now + self._wait_s
            self._wait_s = min(2 * self._wait_s, RARELY_S)

    def _seek(self) -> None:
        self.state, self.since, self._wait_s = SEEKING, self.now, SOON_S
        self._connect()

    def _connect(self) -> None:
        self._retry = NEVER
        self.link.connect()

    @property
    def _seeks_s(self) -> float:
        """How long it seeks the hub: the first, or one that has begun epochs, and was lost."""
        return self._rules.return_s if self.hello.epoch else self._join_s

    def _seek_on(self) -> None:
        """Give up, or connect, if it is time to."""
        if self.now >= self.since + self._seeks_s:  # one that is frozen takes connections as well
            self._exit(failures.LOST, self._why_no_hub())
        elif self.leaving and self.state == GREETING and self.now >= self._left + WORD_S:
            self._leave()
        elif self.now >= self._retry:
            self._connect()

    def _why_no_hub(self) -> failures.Cause:
        if not self.hello.epoch:
            return self.cause or failures.Cause("absent", words=f"the hub{self._place}{self._why}")
        words = f"the hub{self._place}; it has not come back within {self._seeks_s:g} s"
        return failures.Cause("absent", words=words)

    def _keep_in_touch(self) -> None:
        if self.now >= self.heard_at + self._rules.dead_s:
            self._fence()
        elif self.now >= self._beat + self._rules.beat_s:
            self._beat, self._number = self.now, self._number + 1
            self.link.say(messages.Beat(self._number))

    def _fence(self) -> None:
        """The hub is lost: end the workers, for it may begin an epoch without this node."""
        before, self.state = self.state, FENCED
        self.cause = failures.Cause("lost", words="the hub")
        if before == RUNNING:
            self.launcher.halt(self.cause, self._rules.failure_grace_s)
        if before in (RUNNING, STOPPING):
            self.launcher.tell("the hub is lost: ending the workers")
        else:
            self.launcher.tell("the hub is out of reach: trying again")
            self._be_alone()

    def _be_alone(self) -> None:
        """There are neither a hub nor workers: end, or seek the hub again.

        Before the first epoch a hub that is out of reach may wait for this launcher.
        """
        if self.hello.epoch and not self._rules.return_s:
            self._exit(failures.LOST, self.cause)
        elif self.hello.epoch and self.leaving:
            self._leave()
        else:
            self.link.close()
            if self.hello.epoch:
                self.launcher.await_hub(self._seeks_s)
            self.hello = self.hello._replace(leaving=self.leaving)
            self._left = self.now
            self._seek()

    # What the hub says

    @rules.event
    def heard(self, message: messages.ToMember) -> None:
        """The hub has said something."""
        self.heard_at = self.now
        if self.state not in (SEEKING, FENCED):  # then it is of a world that is over here
            self._OF[type(message)](self, message)

    def _of_beat(self, beat: messages.Beat) -> None:
        if beat.number == self._number:
            self._trip_s = min(self._trip_s, self.now - self._beat)

    def _of_welcome(self, welcome: messages.Welcome) -> None:
        if self.state == GREETING:
            if welcome.differs:
                self.launcher.tell(differing("this node", welcome.differs))
            self._trip_s = self.now - self._beat  # since the hello
            self.state, self.cause = JOINED, None
            self._rules, self._join_s = welcome, welcome.join_s

    def _of_waiting(self, waiting: messages.Waiting) -> None:
        who, limit_s = waiting.who, waiting.return_s
        self.launcher.tell(returns(limit_s, who) if limit_s else f"waiting for {who}")

    def _of_refused(self, refused: messages.Refused) -> None:
        if self.state == GREETING:
            self._exit(errors.WRONG_USE, failures.Cause("refused", words=refused.why))

    def _of_start(self, start: messages.Start) -> None:
        """An epoch is begun once, and only if it is later than all that were seen."""
        if self.state == JOINED and start.epoch > self.hello.epoch:
            self.hello = self.hello._replace(
                epoch=start.epoch, nodes=start.nnodes, last=start.node_rank, total=start.total,
                used=start.used, launch=start.launch,
            )  # fmt: skip
            self.state, self.cause, self._is_silent = RUNNING, None, False
            self.launcher.launch(start)

    def _of_begun(self, begun: messages.Begun) -> None:
        if self.state == JOINED and begun.epoch > self.hello.epoch:
            self.hello = self.hello._replace(last=-1, **begun._asdict())

    def _of_stop(self, stop: messages.Stop) -> None:
        if stop.epoch != self.hello.epoch:
            return
        if self.state == RUNNING or (self.state == STOPPING and not stop.grace_s):
            self._stop(stop.cause, stop.grace_s)
        elif self.state == DONE:
            self.state = JOINED
            self.link.say(messages.Idle(stop.epoch, self.hello.port, self._outcomes))

    def _of_stacks(self, stacks: messages.Stacks) -> None:
        if self.state == RUNNING and stacks.epoch == self.hello.epoch:
            self.launcher.show_stacks()

    def _of_end(self, end: messages.End) -> None:
        if self.state == RUNNING:
            self._stop(end.cause or failures.Cause("lost"), self._rules.failure_grace_s)
        if self.state == STOPPING:
            self._end = end
        else:
            self._exit(end.status, end.cause)

    _OF: dict[type, Callable[[Any, Any], None]] = {  # noqa: RUF012 - never changed
        messages.Beat: _of_beat,
        messages.Welcome: _of_welcome,
        messages.Waiting: _of_waiting,
        messages.Refused: _of_refused,
        messages.Start: _of_start,
        messages.Begun: _of_begun,
        messages.Stop: _of_stop,
        messages.Stacks: _of_stacks,
        messages.End: _of_end,
    }

    # What happens on this node

    @rules.event
    def told(self, number: int) -> None:
        """This launcher has got a signal that means to end the job. The hub decides for all."""
        self.link.hurry()
        is_again, self.leaving = self.leaving > 0, self.leaving or number
        cause = failures.Cause("signal", self.hello.host, code=-number)
        if self.state in (SEEKING, GREETING):
            self._told_early(is_again)
            return
        self.link.say(messages.Signalled(number, is_again))
        if self.state == RUNNING:
            self._stop(cause, self._rules.grace_s)
        elif is_again and self.state in (STOPPING, FENCED):
            self.launcher.halt(cause, 0.0)

    def _told_early(self, is_again: bool) -> None:
        """Tell the hub, if it is there: or all would wait for this launcher."""
        self._left, self.hello = self.now, self.hello._replace(leaving=self.leaving)
        if is_again:
            self._leave()
        elif self.state == GREETING:
            self.link.say(messages.Signalled(self.leaving))
        elif self._retry < NEVER:
            self._connect()

    @rules.event
    def worker_failed(self, failed: messages.Failed) -> None:
        """A worker of the epoch has failed by itself; the others are being ended."""
        if self.state not in (RUNNING, STOPPING):
            return
        way_s, early_s = self._trip_s / 2, failed.early_s
        if failed.cause.code in failures.CRASHES:
            # It dies slowly, and who has stopped it is a way off.
            early_s += way_s
        self.link.say(failed._replace(age_s=failed.age_s + way_s, early_s=early_s))
        self.state = STOPPING

    @rules.event
    def workers_ended(
        self, is_well: bool, port: int = 0, outcomes: tuple[tuple[int, int], ...] = ()
    ) -> None:
        """No worker runs any more, and the launcher is ready for others; it holds a free port.

        Well: all have ended with 0, and nobody had told them to end.
        """
        epoch, self.hello = self.hello.epoch, self.hello._replace(port=port)
        if self.state == FENCED:
            self._be_alone()
        elif self._end is not None:
            self._exit(self._end.status, self._end.cause)
        elif self.state == RUNNING and is_well:
            self.state, self._outcomes = DONE, outcomes
            self.link.say(messages.Done(epoch))
        else:
            self.state = JOINED
            self.link.say(messages.Idle(epoch, port, outcomes))

    @rules.event
    def quiet(self, is_so: bool) -> None:
        """No worker has said anything for long; or one has again."""
        if self.state == RUNNING and is_so != self._is_silent:
            self._is_silent = is_so
            epoch = self.hello.epoch
            self.link.say(messages.Silent(epoch) if is_so else messages.Talking(epoch))

    @rules.event
    def stacks_shown(
        self, where: tuple[messages.Where, ...] = (), reached: tuple[messages.Reached, ...] = ()
    ) -> None:
        """The stacks of all workers were shown."""
        if self.state == RUNNING:
            self.link.say(messages.Stacked(self.hello.epoch, where, reached))

"""A member: one node's launcher, as it follows the hub.

    SEEKING   it has no hub: connects to the endpoint, again and again
    GREETING  it has sent its Hello
    JOINED    it is ready for workers
    RUNNING   its workers run
    DONE      its workers have all ended with 0; those of other nodes may run
    STOPPING  its workers are being ended
    FENCED    the hub is lost: its workers are being ended, as the hub may begin an epoch without it
    ENDED     it has its exit status

The link to the hub and the launcher call it with events, and it calls them. It closes the link only
when no workers run: so the link's end proves to the hub that none do.
"""

from __future__ import annotations

from spawnlaunch.base import errors
from spawnlaunch.multinode import messages, rules, words
from spawnlaunch.outcome import failures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Protocol

    class HubLink(Protocol):
        """The connection to the hub."""

        def connect(self) -> None: ...
        def hurry(self) -> None: ...
        def send(self, message: messages.ToHub) -> None: ...
        def close(self) -> None: ...

    class Launcher(Protocol):
        """The actions of a launcher that its member calls."""

        def launch(self, start: messages.Start) -> None:
            """Start the workers of an epoch."""

        def halt(self, cause: failures.Cause, grace_s: float) -> None:
            """End the workers: SIGTERM, and SIGKILL after the grace; then call `workers_ended`."""

        def show_stacks(self) -> None:
            """Show the workers' stacks; then call `stacks_shown`."""

        def print_line(self, line: str) -> None:
            """Print a line, unless the hub of this node prints it."""

        def seek_hub(self, why: str, left_s: float) -> None:
            """Report that the hub is not found yet, and is looked for so much longer."""

        def await_hub(self, limit_s: float) -> None:
            """Report that the hub is lost, and has `limit_s` seconds to come back."""

        def exit(self, status: int, cause: failures.Cause | None) -> None:
            """End the launcher with this status."""


SEEKING, GREETING, JOINED, RUNNING = "seeking", "greeting", "joined", "running"
DONE, STOPPING, FENCED, ENDED = "done", "stopping", "fenced", "ended"

WORD_S = 5.0  # in which a launcher tries to tell the hub of its signal, before it ends
SOON_S, RARELY_S = 0.05, 1.0  # between attempts to connect: at first, at most


class Member(rules.Rules):
    """The decisions of one node's launcher."""

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
        """Set up a member. `join_s`: seconds to find the first hub; `place`: where it listens."""
        super().__init__(clock, wake)
        self.hello = hello  # the Hello of the next connection
        self._join_s, self.link, self.launcher, self._place = join_s, link, launcher, place
        self.state = SEEKING
        self._hub_settings = messages.Welcome()  # the hub's settings
        self.since = failures.NEVER  # when it began to seek
        self._retry = failures.NEVER  # when to connect next, if it is not connecting
        self._wait_s, self._why = SOON_S, ""  # before the next attempt; why the last one failed
        self._names_next_at = failures.NEVER  # when to print that it seeks the hub
        self.last_message_at = 0.0  # when the hub's last message came
        self._beat, self._number = 0.0, 0  # time and number of the last beat that was sent
        self._trip_s = 0.0  # the shortest round trip
        self.end_signal = 0  # the signal that the launcher got
        # When it got that signal, or last connected to a hub or lost one.
        self._end_signal_since = 0.0
        self.cause: failures.Cause | None = None
        self._end: messages.End | None = None  # came while workers ran
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
            yield self._names_next_at
            if self.end_signal and self.state == GREETING:
                yield self._end_signal_since + WORD_S
        elif self.state != FENCED:
            yield self._beat + self._hub_settings.beat_s
            yield self.last_message_at + self._hub_settings.dead_s

    def _exit(self, status: int, cause: failures.Cause | None) -> None:
        self.link.close()
        self.state, self.cause = ENDED, cause
        self.launcher.exit(status, cause)

    def _leave(self) -> None:
        """End with the status of the signal that this launcher got."""
        self._exit(
            128 + self.end_signal, failures.Cause("signal", self.hello.host, code=-self.end_signal)
        )

    def _stop(self, cause: failures.Cause, grace_s: float) -> None:
        self.state = STOPPING
        self.launcher.halt(cause, grace_s)

    # The link

    @rules.event
    def begin(self) -> None:
        """Begin to seek the hub, as the launcher is ready for workers."""
        self._seek()

    @rules.event
    def linked(self) -> None:
        """Send the Hello on a new connection, on which both ends have proved themselves."""
        self.link.send(self.hello)
        self.state = GREETING
        self.last_message_at = self._beat = self._end_signal_since = self.now

    @rules.event
    def unlinked(self, why: str = "", is_final: bool = False, is_nobody: bool = False) -> None:
        """Handle a connection that has failed or ended.

        `is_final`: the other end has another token or version, so that a further attempt is
        useless. `is_nobody`: the hub's machine answers, and no hub runs there.
        """
        self._why = why
        if is_final:
            self._exit(errors.WRONG_USE, failures.Cause("refused", words=why))
        elif self.state == SEEKING:
            self._on_no_hub(is_nobody)
        elif self.state == GREETING:  # the hub is just ending, or has refused this member
            self.state, self._retry = SEEKING, self.now + RARELY_S
        elif self.state != FENCED:
            self._fence()

    def _on_no_hub(self, is_nobody: bool) -> None:
        may_return = (
            self._hub_settings.return_s > 0
            if self.hello.epoch
            else self._hub_settings.is_restarted_by_manager
        )
        if self.end_signal and self.now >= self._end_signal_since + WORD_S:  # no hub to tell
            self._leave()
        elif is_nobody and self.cause and not may_return:  # the hub has ended
            self._exit(failures.LOST, self.cause)
        else:
            self._retry = self.now + self._wait_s
            self._wait_s = min(2 * self._wait_s, RARELY_S)

    def _seek(self) -> None:
        self.state, self.since, self._wait_s = SEEKING, self.now, SOON_S
        self._names_next_at = self.now + rules.FIRST_NAMING_S
        self._connect()

    def _connect(self) -> None:
        self._retry = failures.NEVER
        self.link.connect()

    @property
    def _seeks_s(self) -> float:
        """The seconds that it seeks the hub: its first one, or one that was lost after an epoch."""
        return self._hub_settings.return_s if self.hello.epoch else self._join_s

    def _seek_on(self) -> None:
        """Give up seeking, or connect, if the time for that has come."""
        if self.now >= self.since + self._seeks_s:  # in GREETING too: a frozen hub accepts
            self._exit(failures.LOST, self._why_no_hub())
        elif (
            self.end_signal
            and self.state == GREETING
            and self.now >= self._end_signal_since + WORD_S
        ):
            self._leave()
        elif self.now >= self._retry:
            self._connect()
        if self.now >= self._names_next_at and self.state in (SEEKING, GREETING):
            self._names_next_at = self.now + rules.NAMING_S
            self.launcher.seek_hub(self._why, self.since + self._seeks_s - self.now)

    def _why_no_hub(self) -> failures.Cause:
        if not self.hello.epoch:
            why = f" ({self._why})" if self._why else ""
            return self.cause or failures.Cause("absent", words=f"the hub at {self._place}{why}")
        hub = f"the hub at {self._place}; it has not come back within {self._seeks_s:g} s"
        return failures.Cause("absent", words=hub)

    def _keep_in_touch(self) -> None:
        if self.now >= self.last_message_at + self._hub_settings.dead_s:
            self._fence()
        elif self.now >= self._beat + self._hub_settings.beat_s:
            self._beat, self._number = self.now, self._number + 1
            self.link.send(messages.Beat(self._number))

    def _fence(self) -> None:
        """End the workers after the hub is lost, as it may begin an epoch without this node."""
        before, self.state = self.state, FENCED
        self.cause = failures.Cause("lost", words="the hub")
        if before == RUNNING:
            self.launcher.halt(self.cause, self._hub_settings.failure_grace_s)
        if before in (RUNNING, STOPPING):
            self.launcher.print_line("the hub is lost: ending the workers")
        else:
            self.launcher.print_line("the hub is out of reach: trying again")
            self._end_or_seek()

    def _end_or_seek(self) -> None:
        """End or seek the hub again, when there are neither a hub nor workers.

        Before the first epoch a hub that is out of reach may wait for this launcher.
        """
        if self.hello.epoch and not self._hub_settings.return_s:
            self._exit(failures.LOST, self.cause)
        elif self.hello.epoch and self.end_signal:
            self._leave()
        else:
            self.link.close()
            if self.hello.epoch:
                self.launcher.await_hub(self._seeks_s)
            self.hello = self.hello._replace(end_signal=self.end_signal)
            self._end_signal_since = self.now
            self._seek()

    # Messages of the hub

    @rules.event
    def received(self, message: messages.ToMember) -> None:
        """Handle a message of the hub."""
        self.last_message_at = self.now
        if self.state not in (SEEKING, FENCED):  # there it is about an epoch that is over here
            self._OF[type(message)](self, message)

    def _of_beat(self, beat: messages.Beat) -> None:
        if beat.number == self._number:
            self._trip_s = min(self._trip_s, self.now - self._beat)

    def _of_welcome(self, welcome: messages.Welcome) -> None:
        if self.state == GREETING:
            if welcome.differs:
                self.launcher.print_line(words.differing("this node", welcome.differs))
            self._trip_s = self.now - self._beat  # since the Hello
            self.state, self.cause = JOINED, None
            self._hub_settings, self._join_s = welcome, welcome.join_s

    def _of_waiting(self, waiting: messages.Waiting) -> None:
        names, limit_s = waiting.names, waiting.return_s
        line = words.waiting(names, self._place, waiting.left_s)
        self.launcher.print_line(words.return_line(limit_s, names) if limit_s else line)

    def _of_refused(self, refused: messages.Refused) -> None:
        if self.state == GREETING:
            self._exit(errors.WRONG_USE, failures.Cause("refused", words=refused.why))

    def _of_start(self, start: messages.Start) -> None:
        """Start the workers of an epoch, if it is later than all epochs before."""
        if self.state == JOINED and start.epoch > self.hello.epoch:
            self.hello = self.hello._replace(
                epoch=start.epoch, nodes=start.nnodes, last_node_rank=start.node_rank,
                restart_count=start.restart_count, used=start.used, launch_name=start.launch_name,
            )  # fmt: skip
            self.state, self.cause, self._is_silent = RUNNING, None, False
            self.launcher.launch(start)

    def _of_begun(self, begun: messages.Begun) -> None:
        if self.state == JOINED and begun.epoch > self.hello.epoch:
            self.hello = self.hello._replace(last_node_rank=-1, **begun._asdict())

    def _of_stop(self, stop: messages.Stop) -> None:
        if stop.epoch != self.hello.epoch:
            return
        if self.state == RUNNING or (self.state == STOPPING and not stop.grace_s):
            self._stop(stop.cause, stop.grace_s)
        elif self.state == DONE:
            self.state = JOINED
            self.link.send(messages.Idle(stop.epoch, self.hello.port, self._outcomes))

    def _of_stacks(self, stacks: messages.Stacks) -> None:
        if self.state == RUNNING and stacks.epoch == self.hello.epoch:
            self.launcher.show_stacks()

    def _of_end(self, end: messages.End) -> None:
        if self.state == RUNNING:
            self._stop(end.cause or failures.Cause("lost"), self._hub_settings.failure_grace_s)
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

    # Events on this node

    @rules.event
    def signalled(self, number: int) -> None:
        """Handle a signal to this launcher that ends the launch; the hub decides for all nodes."""
        self.link.hurry()
        is_second, self.end_signal = self.end_signal > 0, self.end_signal or number
        cause = failures.Cause("signal", self.hello.host, code=-number)
        if self.state in (SEEKING, GREETING):
            self._signalled_early(is_second)
            return
        self.link.send(messages.Signalled(number, is_second))
        if self.state == RUNNING:
            self._stop(cause, self._hub_settings.grace_s)
        elif is_second and self.state in (STOPPING, FENCED):
            self.launcher.halt(cause, 0.0)

    def _signalled_early(self, is_second: bool) -> None:
        """Tell a hub that can be reached of the signal, as all nodes would wait for this one."""
        self._end_signal_since, self.hello = (
            self.now,
            self.hello._replace(end_signal=self.end_signal),
        )
        if is_second:
            self._leave()
        elif self.state == GREETING:
            self.link.send(messages.Signalled(self.end_signal))
        elif self._retry < failures.NEVER:
            self._connect()

    @rules.event
    def worker_failed(self, failed: messages.Failed) -> None:
        """Report a worker that has failed by itself; the launcher is ending the others."""
        if self.state not in (RUNNING, STOPPING):
            return
        way_s, early_s = self._trip_s / 2, failed.early_s
        if failed.cause.code in failures.CRASHES:
            # A crash takes time, and the launcher that learns of it is half a round trip away.
            early_s += way_s
        self.link.send(failed._replace(age_s=failed.age_s + way_s, early_s=early_s))
        self.state = STOPPING

    @rules.event
    def workers_ended(
        self, is_well: bool, port: int = 0, outcomes: tuple[tuple[int, int], ...] = ()
    ) -> None:
        """Handle the end of all workers: the launcher holds a free port, and is ready for others.

        `is_well`: all have ended with 0, and no launcher or user ended them.
        """
        epoch, self.hello = self.hello.epoch, self.hello._replace(port=port)
        if self.state == FENCED:
            self._end_or_seek()
        elif self._end is not None:
            self._exit(self._end.status, self._end.cause)
        elif self.state == RUNNING and is_well:
            self.state, self._outcomes = DONE, outcomes
            self.link.send(messages.Done(epoch))
        else:
            self.state = JOINED
            self.link.send(messages.Idle(epoch, port, outcomes))

    @rules.event
    def report_silence(self, is_silent: bool) -> None:
        """Report to the hub that all workers are silent, or that one writes again."""
        if self.state == RUNNING and is_silent != self._is_silent:
            self._is_silent = is_silent
            self.link.send(messages.Silent(self.hello.epoch, is_silent))

    @rules.event
    def stacks_shown(
        self, where: tuple[messages.Where, ...] = (), reached: tuple[messages.Reached, ...] = ()
    ) -> None:
        """Report to the hub that the stacks of all workers were shown, and what they show."""
        if self.state == RUNNING:
            self.link.send(messages.Stacked(self.hello.epoch, where, reached))

"""The rules of a launch: how it answers what happens to its workers.

Each event is a method, which changes the state and calls the actions that follow. No process,
clock or file is looked at here. A launch is in one of three stages, and only goes down:

    RUNNING   nothing has gone wrong
    STOPPING  the workers were told to end and have the grace: SIGTERM, or the Ctrl-C that a worker
              which has the terminal has had as well
    KILLING   SIGKILL was sent

When all have ended, `guard` decides whether they are started once more.
"""

from __future__ import annotations

from spawnlaunch.base import signals
from spawnlaunch.base.signals import signal
from spawnlaunch.outcome import failures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    Ranks = frozenset[int]

    class Workers(Protocol):
        """The actions on the workers, which `processes.Processes` implements."""

        def send(self, signum: int, ranks: Ranks) -> None:
            """Signal the processes; SIGSTOP and SIGCONT are for their whole groups."""

        def forward(self, signum: int, ranks: Ranks) -> None:
            """Signal those workers that catch the signal."""

        def kill(self, ranks: Ranks) -> None:
            """Send SIGKILL to these workers, and to all processes that they started."""

        def leave(self, ranks: Ranks) -> None:
            """Stop waiting for these workers, though they may still run."""

    class Callbacks(Protocol):
        """The actions on the clock and the terminal, which the supervisor implements."""

        def set_deadline(self, after_s: float | None) -> None:
            """Call `time_up` after `after_s` seconds; any earlier deadline is void."""

        def announce(self, event: failures.Cause | str) -> None:
            """Print the line for this event.

            It is a cause, "interrupt", "again", "overdue" or "stuck".
            """

        def show_stacks(self, ranks: Ranks, is_silent: bool = False) -> None:
            """Show where each thread of the workers is, with a line if all of them are silent.

            This takes a while, and ends with a call of `stacks_shown`.
            """

        def resumed(self) -> None:
            """Note that the workers are about to be continued."""


RUNNING, STOPPING, KILLING = "running", "stopping", "killing"

LAST_S = 1.0  # for a process whose time is over, and that may still end

# A job that is suspended is stopped as a whole, one process after the other: one that is stopped is
# continued only if we still run so much later.
STOPPED_S = 1.0


class Decisions:
    """The stage of a launch and its cause, with a method for each event."""

    def __init__(
        self,
        workers: Workers,
        callbacks: Callbacks,
        running: Ranks = frozenset(),
        host: str = "",
        *,
        grace_s: float = 0.0,
        failure_grace_s: float | None = None,  # after another's failure; None: the same
        foreground: Ranks = frozenset(),  # those with the launcher's terminal
        is_debugged: bool = False,  # and Ctrl-C is for them alone
        stack_signal: int = 0,  # asks for the workers' stacks, instead of going to them
        ends_hung: bool = False,  # --on-hang kill
    ) -> None:
        self._workers, self._callbacks = workers, callbacks
        self.running, self._host, self._grace_s = running, host, grace_s
        self._failure_grace_s, self._stack_signal = failure_grace_s, stack_signal
        self._foreground, self._is_debugged = foreground, is_debugged
        self._ends_hung, self._is_hung = ends_hung, False  # ended once the stacks are shown
        self.stage = RUNNING
        self.announced_grace_s = grace_s  # the grace as the user is told it
        self.cause: failures.Cause | None = None
        self._codes: set[int] = set()  # of those that have ended
        self._failures: tuple[failures.Failure, ...] = ()  # that may be the first
        self.interrupts = 0  # SIGINTs that the launcher has got
        self.is_suspended = False
        self.has_later_request = False  # to end, after something else had been the cause

    @property
    def status(self) -> int:
        """The launcher's exit status, once no worker runs."""
        return 0 if self.cause is None else self.cause.status(self._codes)

    @property
    def is_end_requested(self) -> bool:
        """Whether a signal or a time limit has asked for the end, before or after the cause."""
        ends = self.cause is not None and self.cause.kind in ("signal", "timeout", "gone")
        return ends or self.has_later_request

    # Workers

    def exited(self, rank: int, code: int, pid: int | None) -> None:
        """Note that a worker has ended: `code` as subprocess has it, -n for death by signal n."""
        self.running -= {rank}
        self._codes.add(code)
        if code and self.stage == RUNNING:
            cause = failures.Cause("failure", self._host, rank, code, pid=pid or 0)
            self._stop(cause, self._failure_grace_s)

    def failed(self, failure: failures.Failure) -> None:
        """Note a failure of a worker by itself; the others have been told to end.

        Of several failures the earliest is the cause, though another may have been seen before it.
        """
        self._failures = failures.first_candidates(self._failures, failure)
        if self.cause and self.cause.kind == "failure":
            self.cause = failures.first(self._failures).cause

    def silent(self) -> None:
        """Note that no worker has written anything for --hang-timeout."""
        if self.stage == RUNNING and not self.is_suspended:
            self._is_hung = self._ends_hung
            self._callbacks.show_stacks(self.running, is_silent=True)

    def stacks_shown(self) -> None:
        """Note that the stacks that `show_stacks` asked for have been shown."""
        is_hung, self._is_hung = self._is_hung, False
        if is_hung and self.running and self.stage == RUNNING:
            self._stop(failures.Cause("hang"))

    # What asks for the end

    def signalled(self, signum: int, is_typed: bool = False) -> None:
        """Handle a signal to the launcher.

        Typed: it came from the terminal, whose foreground group got it too.
        """
        if signum not in signals.STOP:
            self._pass_on(signum, is_typed)
        elif signum == signal.SIGINT:
            self._interrupted(is_typed)
        else:
            self._end(failures.Cause("signal", self._host, code=-signum))

    def _interrupted(self, is_typed: bool) -> None:
        at_worker_too = is_typed and self.running & self._foreground
        if at_worker_too and self._is_debugged:
            return
        cause = failures.Cause("signal", self._host, code=-signal.SIGINT)
        self.interrupts += 1
        if self.interrupts > 1:
            self._kill("again")
        elif at_worker_too and self.stage == RUNNING:
            self.stage, self.cause = STOPPING, cause
            self._callbacks.set_deadline(self._grace_s)
            self._callbacks.announce("interrupt")
        else:
            self._end(cause)

    def guard_signalled(self, signum: int) -> None:
        """Handle a signal to the guard that means to end the job.

        The launcher may have got it too.
        """
        self._end(failures.Cause("signal", self._host, code=-signum))

    def timed_out(self) -> None:
        """End the launch because its time limit has passed."""
        self._end(failures.Cause("timeout"))

    def halt(self, cause: failures.Cause, grace_s: float) -> None:
        """End all workers, as the launchers of several nodes have agreed; no grace: at once.

        A launch that is stopping keeps the grace that it has, unless all are to end at once.
        """
        if not grace_s and self.stage != KILLING:
            self.cause = self.cause or cause
            self._kill()
        elif self.stage == RUNNING:
            self._stop(cause, grace_s, is_announced=False)

    def launcher_died(self) -> None:
        """Kill the workers because the launcher has died."""
        cause = failures.Cause("gone")
        self.cause, self.has_later_request = self.cause or cause, True
        self._kill(cause)

    # Time

    def time_up(self, unkillable: Ranks = frozenset()) -> None:
        """Act on the deadline, which has passed; SIGKILL does not end the ranks in `unkillable`."""
        if self.stage == STOPPING:
            self._kill("overdue")
        elif unkillable:
            self._callbacks.set_deadline(failures.STUCK_S)
            self._workers.leave(unkillable)
        else:
            self._callbacks.set_deadline(None)
            self._callbacks.announce("stuck")

    # What follows

    def _end(self, cause: failures.Cause) -> None:
        """End the launch, unless it is ending already."""
        if self.stage == RUNNING:
            self._stop(cause)
        else:
            self.has_later_request = True

    def _stop(
        self, cause: failures.Cause, grace_s: float | None = None, is_announced: bool = True
    ) -> None:
        """Tell the workers to end; an earlier cause stays."""
        was_suspended, self.is_suspended = self.is_suspended, False
        self.stage, self.cause = STOPPING, self.cause or cause
        if self.running:
            self._workers.send(signal.SIGTERM, self.running)
            if was_suspended:  # a stopped process cannot use its grace
                self._resume()
            self.announced_grace_s = self._grace_s if grace_s is None else grace_s
            self._callbacks.set_deadline(self.announced_grace_s)
            if is_announced:
                self._callbacks.announce(cause)

    def _kill(self, announcement: failures.Cause | str | None = None) -> None:
        self.stage = KILLING
        self._workers.kill(self.running)
        self._callbacks.set_deadline(failures.STUCK_S if self.running else None)
        if announcement:
            self._callbacks.announce(announcement)

    def _pass_on(self, signum: int, is_typed: bool) -> None:
        """Pass a signal on to the workers.

        A worker that has the terminal has already got what was typed there.
        """
        ranks = self.running - self._foreground if is_typed else self.running
        if signum == self._stack_signal:
            self._callbacks.show_stacks(self.running)
        elif signum in signals.FORWARD:
            self._workers.forward(signum, ranks)
        elif signum == signal.SIGTSTP:
            self.is_suspended = True
            self._workers.send(signal.SIGSTOP, ranks)
        else:
            self._resume()

    def _resume(self) -> None:
        self.is_suspended = False
        if self.running:
            self._callbacks.resumed()
        self._workers.send(signal.SIGCONT, self.running)

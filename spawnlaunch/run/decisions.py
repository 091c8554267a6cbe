"""What to do when something happens to the workers of a launch: pure functions.

    decide(state, event) -> (state, actions)

No process, clock or file is looked at here. A launch is in one of four stages, and only goes down:

    RUNNING      nothing has gone wrong
    INTERRUPTED  Ctrl-C was typed, and the one worker that has the terminal has had it as well
    STOPPING     the workers were told to end (SIGTERM) and have the grace
    KILLING      SIGKILL was sent

(A worker that answers Ctrl-C with a prompt, as a debugger does, takes it from INTERRUPTED back to
RUNNING.)

When all have ended, `restarted` decides whether they are started once more.
"""

from __future__ import annotations

from spawnlaunch.records import NamedTuple
from spawnlaunch.run import signals
from spawnlaunch.run.signals import exit_status, signal

RUNNING, INTERRUPTED, STOPPING, KILLING = "running", "interrupted", "stopping", "killing"

TIMED_OUT = 124  # exit status of timeout(1) (coreutils)

# After SIGKILL a process is gone in milliseconds, unless it is stuck in the kernel.
STUCK_S = 10.0
LAST_S = 1.0  # for what has had its time, and may still end

LOOK_S = 0.1  # how often a worker that was interrupted is looked at for a prompt


class Exited(NamedTuple):
    """A worker has ended: `code` as subprocess has it, -n for death by signal n."""

    rank: int
    code: int


class Signalled(NamedTuple):
    """The launcher got a signal."""

    signum: int
    typed: bool = False  # on the terminal, so its whole foreground group got it
    prompt: bool = False  # somebody waits there for a key, as readline and full-screen programs do


class GuardSignalled(NamedTuple):
    """The guard got a signal that means to end the job; the launcher may have got it as well."""

    signum: int


class TimeUp(NamedTuple):
    """The deadline that was set last has passed."""

    prompt: bool = False
    unkillable: frozenset[int] = frozenset()  # ranks that will not die of SIGKILL


class TimedOut(NamedTuple):
    """The launch has had all the time that it was given."""


class GangStops(NamedTuple):
    """The launchers of several nodes have agreed to end all workers."""

    grace_s: float  # 0: at once


class Silent(NamedTuple):
    """No worker has written anything for --hang-timeout."""


class StacksTold(NamedTuple):
    """TellStacks is done."""


class LauncherGone(NamedTuple):
    """The launcher has died, and nobody is there to watch for."""


Event = (
    Exited | Signalled | GuardSignalled | TimeUp | TimedOut | GangStops | Silent | StacksTold
    | LauncherGone
)  # fmt: skip


class Send(NamedTuple):
    """Signal the worker processes; SIGSTOP and SIGCONT are for their whole groups."""

    signum: int
    ranks: frozenset[int]


class Forward(NamedTuple):
    """Signal those of the workers that catch the signal."""

    signum: int
    ranks: frozenset[int]


class Kill(NamedTuple):
    """SIGKILL for the workers, and for all that they started."""

    ranks: frozenset[int]


class Leave(NamedTuple):
    """Wait for these no longer, though they may still run."""

    ranks: frozenset[int]


class TellStacks(NamedTuple):
    """Show where each thread of the workers is. It takes a while, and ends with StacksTold."""

    ranks: frozenset[int]


class Deadline(NamedTuple):
    """Send TimeUp after so many seconds; any earlier deadline is void."""

    after_s: float | None


class Announce(NamedTuple):
    """Tell the user, in words that the state gives."""

    # "failure", "signal", "interrupt", "again", "timeout", "silent", "hang", "overdue", "stuck",
    # or "gone"
    what: str
    number: int = 0  # the rank, or the signal


Action = Send | Forward | Kill | Leave | TellStacks | Deadline | Announce


class Cause(NamedTuple):
    """Why the workers are being ended."""

    kind: str  # "failure", "signal", "timeout", "hang", "preload", "gang" or "gone"
    number: int = 0  # the rank that failed first, or the signal
    code: int = 0  # of a failure: how that rank ended


class State(NamedTuple):
    """A launch, as far as decisions go."""

    running: frozenset[int]  # ranks
    grace_s: float
    failure_grace_s: float | None = None  # where it is another one
    lone: bool = False  # the one worker shares the terminal with the launcher
    foreground: frozenset[int] = frozenset()  # ranks that get what is typed as the launcher does
    ended: tuple[Exited, ...] = ()  # in the order in which it was seen
    stage: str = RUNNING
    cause: Cause | None = None
    interrupts: int = 0  # SIGINTs that the launcher has got
    patience_s: float = 0.0  # for a worker that was interrupted to end, or to open a prompt
    suspended: bool = False
    told_later: bool = False  # to end, after something else had been the cause
    stack_signal: int = 0  # asks for the workers' stacks, instead of going to them
    ends_hung: bool = False  # --on-hang kill
    hung: bool = False  # and will be ended once their stacks are told

    @property
    def status(self) -> int:
        """The launcher's exit status, once nobody is running."""
        if self.cause is None:
            return 0
        if self.cause.kind == "failure":
            return exit_status(self.cause.code)
        if self.cause.kind in ("timeout", "hang"):
            return TIMED_OUT
        codes = {code for _, code in self.ended}
        if len(codes) == 1 and min(codes) >= 0:
            return codes.pop()  # all ended by themselves and alike: "preempted, saved" is seen
        return 128 + (self.cause.number or signal.SIGKILL)

    @property
    def was_told_to_end(self) -> bool:
        """Whether somebody wants an end of the launch, before or after it came."""
        ends = self.cause is not None and self.cause.kind in ("signal", "timeout", "gone")
        return ends or self.told_later


Decision = tuple[State, list[Action]]


def decide(state: State, event: Event) -> Decision:
    """The state after an event, and what to do about it, in this order."""
    match event:
        case Exited(rank=rank, code=code):
            state = state._replace(running=state.running - {rank}, ended=(*state.ended, event))
            failure = Cause("failure", rank, code)
            is_first = code != 0 and state.stage == RUNNING
            return _stop(state, failure, state.failure_grace_s) if is_first else (state, [])
        case Signalled(signum=signum):
            to_end = signum in signals.STOP
            return _told_to_stop(state, event) if to_end else _passed_on(state, event)
        case GuardSignalled(signum=signum):
            return _end(state, Cause("signal", signum))
        case TimeUp():
            return _time_up(state, event)
        case TimedOut():
            return _end(state, Cause("timeout"))
        case GangStops(grace_s=grace_s):
            return _gang_stops(state, grace_s)
        case Silent():
            return _silent(state)
        case StacksTold():
            return _stacks_told(state)
        case LauncherGone():
            state = state._replace(cause=state.cause or Cause("gone"), told_later=True)
            return _kill(state, [Announce("gone")])


def _told_to_stop(state: State, event: Signalled) -> Decision:
    there = state.lone or state.running & state.foreground
    at_worker_too = there and event.typed and event.signum == signal.SIGINT
    if at_worker_too and (event.prompt or not state.lone):  # one of several is debugged
        return state, []
    if event.signum == signal.SIGINT:
        state = state._replace(interrupts=state.interrupts + 1)
        if state.interrupts > 1:
            return _kill(state, [Announce("again", event.signum)])
    cause = Cause("signal", event.signum)
    if state.stage == RUNNING and at_worker_too:
        state = state._replace(stage=INTERRUPTED, cause=cause, patience_s=state.grace_s / 2)
        return _looked_for_prompt(state, [Announce("interrupt", event.signum)])
    return _end(state, cause)


def _end(state: State, cause: Cause) -> Decision:
    """The launch is to end, which may be on its way already."""
    if state.stage in (RUNNING, INTERRUPTED):
        return _stop(state, cause)
    return state._replace(told_later=True), []


def _stop(state: State, cause: Cause, grace_s: float | None = None) -> Decision:
    """Tell the workers to end. The cause that was there first stays."""
    actions: list[Action] = []
    if state.running:
        actions = [
            Send(signal.SIGTERM, state.running),
            # A stopped process cannot use its grace.
            *([Send(signal.SIGCONT, state.running)] if state.suspended else []),
            Deadline(state.grace_s if grace_s is None else grace_s),
            Announce(cause.kind, cause.number),
        ]
    return state._replace(stage=STOPPING, cause=state.cause or cause, suspended=False), actions


def _gang_stops(state: State, grace_s: float) -> Decision:
    """Who stops already has its grace, unless all are to end at once."""
    if not grace_s and state.stage != KILLING:
        return _kill(state._replace(cause=state.cause or Cause("gang")), [])
    if state.stage in (RUNNING, INTERRUPTED):
        state, actions = _stop(state, Cause("gang"), grace_s)
        return state, [action for action in actions if not isinstance(action, Announce)]
    return state, []


def _kill(state: State, announce: list[Action]) -> Decision:
    return (
        state._replace(stage=KILLING),
        [Kill(state.running), Deadline(STUCK_S), *announce],
    )


def _passed_on(state: State, event: Signalled) -> Decision:
    """A signal for the workers; one that has the terminal has had what was typed there."""
    if event.signum == state.stack_signal:
        return state, [TellStacks(state.running)]
    ranks = state.running - state.foreground if event.typed else state.running
    if event.signum in signals.FORWARD:
        return state, [Forward(event.signum, ranks)]
    if event.signum == signal.SIGTSTP:
        return state._replace(suspended=True), [Send(signal.SIGSTOP, ranks)]
    return state._replace(suspended=False), [Send(signal.SIGCONT, state.running)]


def _time_up(state: State, event: TimeUp) -> Decision:
    if state.stage == INTERRUPTED and event.prompt:
        state = state._replace(stage=RUNNING, cause=None, interrupts=0, patience_s=0.0)
        return state, [Deadline(None)]
    if state.stage == INTERRUPTED and state.patience_s:
        return _looked_for_prompt(state, [])
    if state.stage == INTERRUPTED and state.cause:
        return _stop(state, state.cause, state.grace_s / 2)
    if state.stage == STOPPING:
        return _kill(state, [Announce("overdue")])
    if event.unkillable:
        return state, [Deadline(STUCK_S), Leave(event.unkillable)]
    return state, [Deadline(None), Announce("stuck")]


def _looked_for_prompt(state: State, told: list[Action]) -> Decision:
    """There is none yet: look again soon, for it may be open for a moment only."""
    look_s = min(LOOK_S, state.patience_s)
    return state._replace(patience_s=state.patience_s - look_s), [Deadline(look_s), *told]


def _silent(state: State) -> Decision:
    if state.stage != RUNNING or state.suspended:
        return state, []
    told: list[Action] = [Announce("silent"), TellStacks(state.running)]
    return state._replace(hung=state.ends_hung), told


def _stacks_told(state: State) -> Decision:
    hung, state = state.hung, state._replace(hung=False)
    if hung and state.running and state.stage == RUNNING:
        return _stop(state, Cause("hang"))
    return state, []


# Restarts


class Budget(NamedTuple):
    """The restarts that the user allows; after `window_s` of health all of them are left again."""

    most: int = 0
    window_s: float = 0.0  # of health, after which nothing of the budget is used; 0: never
    final: frozenset[int] = frozenset()  # exit statuses of a first failure that end the launch


class Tally(NamedTuple):
    """The restarts so far."""

    total: int = 0  # TORCHELASTIC_RESTART_COUNT
    used: int = 0  # of the budget


def restarted(tally: Tally, budget: Budget, state: State, healthy_s: float) -> Tally | None:
    """The tally with one more restart; None: the launch ends with what it has.

    `state` is that of workers none of whom runs any more, and who were healthy for so long.
    """
    if state.cause is None or state.cause.kind not in ("failure", "hang") or state.told_later:
        return None
    if state.status in budget.final:
        return None
    used = 0 if 0 < budget.window_s <= healthy_s else tally.used
    return Tally(tally.total + 1, used + 1) if used < budget.most else None

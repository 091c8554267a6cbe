"""The words for what happened: one line when it happens, a report of all ranks at the end.

The report ends with the first failure's own traceback, so that it is what a person sees last.
"""

from __future__ import annotations

from spawnlaunch.run.decisions import STUCK_S, Cause, State
from spawnlaunch.run.options import Hang, Options
from spawnlaunch.run.outcome import Ending, Outcome
from spawnlaunch.run.restarts import Budget, Tally
from spawnlaunch.run.signals import how_it_ended, name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def announced(
    what: str, number: int, state: State, outcomes: Sequence[Outcome], options: Options
) -> str:
    """The line for a decision's Announce; `outcomes` are those so far."""
    ranks, grace_s = sorted(state.running), options.grace_s
    match what:
        case "failure":
            return failed(outcomes[-1], len(ranks), options.hostname)
        case "signal":
            return told(number, grace_s, options.grace_why)
        case "interrupt":
            return interrupted(grace_s)
        case "again":
            return again(number)
        case "silent":
            return silent(options.hang)
        case "hang":
            return hung(grace_s)
        case "timeout":
            return timed_out(options.timeout_s, grace_s)
        case "overdue":
            return overdue(ranks, grace_s, options.hostname)
        case "stuck":
            return stuck(ranks, STUCK_S, options.hostname)
    return "the launcher is gone: ended the workers"


def failed(outcome: Outcome, others: int, hostname: str) -> str:
    """Said at once when the first worker fails."""
    return f"{_who(outcome, hostname)} {how_it_ended(outcome.code)}; stopping the other {others}"


def told(signum: int, grace_s: float, why: str = "") -> str:
    """Said at once when a signal ends the job; `why` it is so many seconds, where that is odd."""
    return f"{name(signum)}: {_stopping(grace_s)}{why}"


def interrupted(grace_s: float) -> str:
    """Said when Ctrl-C was typed for a worker that has the terminal."""
    return f"Ctrl-C: the worker has {grace_s:g} s to end; Ctrl-C again kills it"


def again(signum: int) -> str:
    """Said when the user has lost patience."""
    return f"{name(signum)} again: killing the workers"


def timed_out(timeout_s: float, grace_s: float) -> str:
    """Said at once when the time of the launch is over."""
    return f"--timeout: {timeout_s:g} s are over; {_stopping(grace_s)}"


def ended_early(cause: Cause, options: Options) -> str:
    """Said when the launch is to end while modules are imported for workers to come."""
    what = {"signal": name(cause.number), "timeout": f"--timeout: {options.timeout_s:g} s are over"}
    why = what.get(cause.kind, "the launcher is gone")
    return f"{why}: --preload {','.join(options.preload)} was still being imported"


def silent(hang: Hang) -> str:
    """Said before the stacks."""
    return f"no output from any rank for {hang.timeout_s:g} s; this is where they are:"


def hung(grace_s: float) -> str:
    """Said after them."""
    return f"--on-hang kill: {_stopping(grace_s)}"


def _stopping(grace_s: float) -> str:
    return f"stopping the workers, which have {grace_s:g} s"


def restart(ending: Ending, tally: Tally, budget: Budget) -> str:
    """Said when all have ended and are about to start anew."""
    in_all = "" if tally.total == tally.used else f" (in all {tally.total})"
    return f"{_why(ending)}: restart {tally.used} of {budget.most}{in_all}"


def _why(ending: Ending) -> str:
    first = ending.first_failure
    if first is None:
        return f"the workers hung after {ending.healthy_s:.1f} s"
    who = _who(first, ending.hostname)
    return f"{who} {how_it_ended(first.code)} after {first.after_s:.1f} s"


def overdue(ranks: Sequence[int], grace_s: float, hostname: str) -> str:
    """Said when the grace has ended."""
    return f"{_ranks(ranks)} on {hostname} still ran after {grace_s:g} s: killed"


def stuck(ranks: Sequence[int], seconds: float, hostname: str) -> str:
    """Said when even SIGKILL did not help."""
    return (
        f"{_ranks(ranks)} on {hostname} did not die of SIGKILL within {seconds:g} s and must be "
        "stuck in the kernel (a lost file system, a wedged driver); waiting for it"
    )


def summary(ending: Ending) -> Iterator[str]:
    """How a launch ended that failed, the first failure first, or that was told to end."""
    first = ending.first_failure
    listed = [outcome for outcome in ending.outcomes if outcome != first]
    if first:
        restarts = len(ending.restarted)
        before = f", and {restarts} restart{'s' if restarts > 1 else ''}" if restarts else ""
        yield f"failed{' first' if listed else ''}: {_why(ending)}{before}"
    elif len({outcome.code for outcome in listed}) > 1:
        listed = [outcome for outcome in listed if not _as_told(outcome)]
    else:
        listed = []
    width = len(str(max((outcome.rank for outcome in ending.outcomes), default=0)))
    for outcome in sorted(listed):
        yield f"  {_who(outcome, ending.hostname, width)} {_how(outcome)}"
    if ending.oom:
        yield ending.oom


def _as_told(outcome: Outcome) -> bool:
    """Whether a worker ended as workers do that are told to; who had to be killed was named."""
    return outcome.code in (0, -outcome.told)


def _how(outcome: Outcome) -> str:
    """How another rank ended: by itself, or because it was told to."""
    if outcome.left:
        return "could not be killed"
    told = f" after {name(outcome.told)} from the launcher" if outcome.told else ""
    if outcome.told and outcome.code == -outcome.told:
        told = " from the launcher"
    return how_it_ended(outcome.code) + told


def _ranks(ranks: Sequence[int]) -> str:
    listed = ", ".join(map(str, sorted(ranks)))
    return f"rank {listed}" if len(ranks) == 1 else f"ranks {listed}"


def _who(outcome: Outcome, hostname: str, width: int = 0) -> str:
    """`rank 3 on node1 (pid 25342)`: where to look for it."""
    pid = f"pid {outcome.pid}" if outcome.pid is not None else "not started"
    return f"rank {outcome.rank:{width}} on {hostname} ({pid})"

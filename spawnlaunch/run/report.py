"""The words for what happened: one line when it happens, a report of all ranks at the end.

The report ends with the first failure's own traceback, so that it is what a person sees last.
"""

from collections.abc import Iterator, Sequence

from spawnlaunch.run.decisions import STUCK_S, State
from spawnlaunch.run.options import Hang, Options
from spawnlaunch.run.outcome import Ending, Outcome
from spawnlaunch.run.restarts import Budget, Tally
from spawnlaunch.run.signals import how_it_ended, name


def announced(
    what: str, number: int, state: State, outcomes: Sequence[Outcome], options: Options
) -> str:
    """The line for a decision's Announce; `outcomes` are those so far."""
    ranks, grace_s = sorted(state.running), options.grace_s
    match what:
        case "failure":
            return failed(outcomes[-1], len(ranks))
        case "signal":
            return told(number, grace_s)
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
            return overdue(ranks, grace_s)
        case "stuck":
            return stuck(ranks, STUCK_S)
    return "the launcher is gone: ended the workers"


def failed(outcome: Outcome, others: int) -> str:
    """Said at once when the first worker fails."""
    how = how_it_ended(outcome.code)
    return f"rank {outcome.rank} ({_pid(outcome)}) {how}; stopping the other {others}"


def told(signum: int, grace_s: float) -> str:
    """Said at once when a signal ends the job."""
    return f"{name(signum)}: {_stopping(grace_s)}"


def interrupted(grace_s: float) -> str:
    """Said when Ctrl-C was typed for a worker that has the terminal."""
    return f"Ctrl-C: the worker has {grace_s:g} s to end; Ctrl-C again kills it"


def again(signum: int) -> str:
    """Said when the user has lost patience."""
    return f"{name(signum)} again: killing the workers"


def timed_out(timeout_s: float, grace_s: float) -> str:
    """Said at once when the time of the launch is over."""
    return f"--timeout: {timeout_s:g} s are over; {_stopping(grace_s)}"


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
    return (
        f"rank {first.rank} on {ending.hostname} ({_pid(first)}) {how_it_ended(first.code)} after "
        f"{first.after_s:.1f} s"
    )


def overdue(ranks: Sequence[int], grace_s: float) -> str:
    """Said when the grace has ended."""
    return f"{_ranks(ranks)} still ran after {grace_s:g} s: killed"


def stuck(ranks: Sequence[int], seconds: float) -> str:
    """Said when even SIGKILL did not help."""
    return (
        f"{_ranks(ranks)} did not die of SIGKILL within {seconds:g} s and must be stuck in the "
        "kernel (a lost file system, a wedged driver); waiting for it"
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
    width = len(str(max(outcome.rank for outcome in ending.outcomes)))
    for outcome in sorted(listed):
        yield f"  rank {outcome.rank:{width}} ({_pid(outcome)}) {_how(outcome)}"
    if ending.oom:
        yield ending.oom


def _as_told(outcome: Outcome) -> bool:
    """Whether a worker ended as workers do that are told to; who had to be killed was named."""
    return outcome.code in (0, -outcome.told)


def _how(outcome: Outcome) -> str:
    """How another rank ended: by itself, or because it was told to."""
    told = f" after {name(outcome.told)} from the launcher" if outcome.told else ""
    if outcome.told and outcome.code == -outcome.told:
        told = " from the launcher"
    return how_it_ended(outcome.code) + told


def _ranks(ranks: Sequence[int]) -> str:
    listed = ", ".join(map(str, sorted(ranks)))
    return f"rank {listed}" if len(ranks) == 1 else f"ranks {listed}"


def _pid(outcome: Outcome) -> str:
    return f"pid {outcome.pid}" if outcome.pid is not None else "not started"

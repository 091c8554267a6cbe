"""Which failure was the first, what the launch ends with, and whether it is tried again. Pure."""

from __future__ import annotations

from spawnlaunch.gang.messages import Cause, Failed
from spawnlaunch.gang.settings import Settings
from spawnlaunch.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

LOST = 69  # EX_UNAVAILABLE of sysexits.h: a node or the hub is not there
TIMED_OUT = 124  # of timeout(1) (coreutils)
SIGABRT, SIGKILL = 6, 9

LEAVE_S = 1.0  # in which a signal that is for all nodes comes to all

# What libraries say in a rank whose peer is gone.
VICTIMS_WORDS = ("closed by peer", "reset by peer", "Broken pipe", "remote process exited")

FAULTS = frozenset({"failure", "hang", "lost"})  # these use up the budget


class Failure(NamedTuple):
    """A worker's failure, and when it was, by the hub's clock."""

    is_victim: bool  # it looks as one whose peer failed before
    when: float
    cause: Cause


def failure(told: Failed, host: str, at: float) -> Failure:
    """What a member has told just now."""
    is_victim = told.code == -SIGABRT or any(words in told.words for words in VICTIMS_WORDS)
    cause = Cause("failure", host, told.rank, told.code, told.words, told.pid, told.oom)
    return Failure(is_victim, at - told.age_s, cause)


def first(one: Failure | None, other: Failure) -> Failure:
    """The one that was earlier; a victim is never the first where there is another."""
    if one is None:
        return other
    return min(one, other, key=lambda failure: (failure.is_victim, failure.when))


def cause(given: Cause, failure: Failure | None, lost: tuple[str, ...]) -> Cause:
    """The cause of an epoch's end, now that all is known that will be.

    Where all failures are victims' and a node is lost, that is why they failed.
    """
    if given.kind == "failure" and failure is not None:
        if failure.is_victim and lost:
            return failure.cause._replace(kind="lost", host=lost[0], rank=-1, number=0, lost=lost)
        return failure.cause._replace(lost=lost)
    return given._replace(lost=lost)


def status(cause: Cause, outcomes: Iterable[tuple[int, int]] = ()) -> int:
    """The exit status of all launchers."""
    if cause.kind == "failure":
        return exit_status(cause.number)
    if cause.kind in ("timeout", "hang"):
        return TIMED_OUT
    if cause.kind == "signal":
        codes = {code for _, code in outcomes}
        if len(codes) == 1 and min(codes) >= 0:
            return codes.pop()  # all ended by themselves and alike
        return 128 + cause.number
    return LOST


def exit_status(code: int) -> int:
    """The shell's exit status for a code of subprocess's kind: -n is death by signal n."""
    return code if code >= 0 else 128 - code


def used_after(cause: Cause, used: int, healthy_s: float, settings: Settings) -> int | None:
    """How much of the budget is used if the workers are started again; None: they are not."""
    if cause.kind not in FAULTS:
        return used
    if cause.kind == "failure" and status(cause) in settings.final:
        return None
    if 0 < settings.window_s <= healthy_s:
        used = 0
    return used + 1 if used < settings.max_restarts else None

"""Why an epoch has ended, and whether it is tried again. Pure."""

from __future__ import annotations

from spawnlaunch import failures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from spawnlaunch.gang import messages
    from spawnlaunch.gang.settings import Settings

LEAVE_S = 1.0  # in which a signal that is for all nodes comes to all


def failure(told: messages.Failed, host: str, at: float) -> failures.Failure:
    """What a member has told just now; times are the hub's."""
    cause = told.cause._replace(kind="failure", host=host)
    return failures.Failure(cause, at - told.age_s, told.early_s)


def cause(
    given: failures.Cause, failed: Sequence[failures.Failure], lost: tuple[str, ...]
) -> failures.Cause:
    """The cause of an epoch's end, now that all is known that will be.

    Where all failures are victims' and a node is lost, that is why they failed.
    """
    if given.kind == "failure" and failed:
        first = failures.first(failed)
        if lost and first.order in (failures.VICTIM, failures.ABORT):
            return failures.Cause("lost", lost[0], lost=lost, after_s=given.after_s)
        given = first.cause._replace(after_s=given.after_s)
    return given._replace(lost=lost)


def used_after(cause: failures.Cause, used: int, settings: Settings) -> int | None:
    """How much of the budget is used if the workers are started again; None: they are not."""
    if cause.kind not in failures.FAULTS:
        return used
    final = settings.final if cause.kind == "failure" else frozenset()
    return failures.used_after(cause, used, settings.max_restarts, settings.window_s, final)

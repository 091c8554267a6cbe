"""Whether workers that have failed are started once more: a pure function over attempts.

The budget is `most` restarts. It is full again whenever an attempt has been healthy for `window_s`:
what fails once a day is worth another start, what fails at once is not.
"""

from __future__ import annotations

from spawnlaunch.records import NamedTuple
from spawnlaunch.run.decisions import State


class Budget(NamedTuple):
    """What the user allows."""

    most: int = 0
    window_s: float = 0.0  # of health, after which nothing of the budget is used; 0: never
    final: frozenset[int] = frozenset()  # exit statuses of a first failure that end the launch


class Tally(NamedTuple):
    """The restarts so far."""

    total: int = 0  # TORCHELASTIC_RESTART_COUNT
    used: int = 0  # of the budget


def restarted(tally: Tally, budget: Budget, state: State, healthy_s: float) -> Tally | None:
    """The tally with one more restart; None: the launch ends with what it has.

    `state` is that of a gang of which nobody runs any more, and which was healthy for so long.
    """
    if state.cause is None or state.cause.kind not in ("failure", "hang") or state.told_to_end:
        return None
    if state.status in budget.final:
        return None
    used = 0 if 0 < budget.window_s <= healthy_s else tally.used
    return Tally(tally.total + 1, used + 1) if used < budget.most else None

"""How a launch ended: what is known of every rank, and of all together."""

from __future__ import annotations

from spawnlaunch.records import NamedTuple
from spawnlaunch.run.decisions import Cause


class Outcome(NamedTuple):
    """How one worker ended."""

    rank: int
    local_rank: int
    pid: int | None  # None: it could not be started
    code: int  # exit status, or -n for death by signal n
    after_s: float  # from its start to its end, in seconds
    told: int  # the last signal that the launcher sent to end it; 0: it ended by itself
    error_file: str | None  # where torch's @record writes
    stderr: str | None  # the file that its stderr goes to
    tail: str | None = None  # what it wrote last to its stderr, where that is a pipe of ours
    left: bool = False  # SIGKILL did not end it, and nobody waits for it any more


class Attempt(NamedTuple):
    """Workers that failed, and were followed by others."""

    cause: Cause
    status: int  # what the launcher's exit status would have been
    healthy_s: float  # from their start to the failure, in seconds


class Ending(NamedTuple):
    """How the launch ended, or one attempt of it."""

    status: int  # the launcher's exit status
    cause: Cause | None  # None: every worker ended with 0
    outcomes: tuple[Outcome, ...]  # in the order in which the workers ended
    hostname: str
    run_id: str
    oom: str | None  # evidence of the out-of-memory killer, in words
    restarted: tuple[Attempt, ...] = ()  # those before, in their order

    @property
    def first_failure(self) -> Outcome | None:
        """The worker whose failure ended the launch."""
        if self.cause is None or self.cause.kind != "failure":
            return None
        return next(one for one in self.outcomes if one.rank == self.cause.number)

    @property
    def healthy_s(self) -> float:
        """For how long it went well, in seconds."""
        first = self.first_failure
        return first.after_s if first else max(outcome.after_s for outcome in self.outcomes)

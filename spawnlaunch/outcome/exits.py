"""The records of how workers and launches have ended."""

from __future__ import annotations

from spawnlaunch.base import records
from spawnlaunch.outcome import failures

TYPE_CHECKING = False
if TYPE_CHECKING:
    import resource


class WorkerExit(records.NamedTuple):
    """The end of one worker."""

    rank: int
    local_rank: int
    pid: int | None  # None: it could not be started
    code: int  # exit status, or -n for death by signal n
    after_s: float  # from its start to its end, in seconds
    sent: int  # the last signal that the launcher sent to end it; 0: it ended by itself
    error_file: str | None  # where torch's @record writes
    stderr: str | None  # the file that its stderr goes to
    stdout: str | None = None  # the file that its stdout goes to
    tail: str | None = None  # the last output on its stderr, where that is a pipe of ours
    used: resource.struct_rusage | None = None  # by it and the children that it has waited for
    left: bool = False  # SIGKILL did not end it, and it is not waited for any more
    told_s: float = 0.0  # how long before its end the launcher told it to end
    failed_s: float = 0.0  # its failure was at least so long before its end
    early_s: float = 0.0  # and perhaps up to so much earlier than that
    said_s: float = 0.0  # how long before its end it wrote to its stderr last, where that is a pipe


class LaunchResult(records.NamedTuple):
    """How a launch, or one attempt of it, ended."""

    status: int  # the launcher's exit status
    cause: failures.Cause | None  # None: every worker ended with 0
    exits: tuple[WorkerExit, ...] = ()  # in the order in which the workers ended
    # Of attempts that were followed by another, in their order.
    restarted: tuple[failures.Cause, ...] = ()

    @property
    def first_failure(self) -> WorkerExit | None:
        """The worker that failed first and so ended the launch, if it was on this node."""
        if self.cause is None or self.cause.kind != "failure":
            return None
        who = self.cause.rank, self.cause.pid
        return next((one for one in self.exits if (one.rank, one.pid or 0) == who), None)

"""What a launch needs to know besides its workers, and what is known of its end."""

from __future__ import annotations

from spawnlaunch.errors import UsageError
from spawnlaunch.reading import absolute
from spawnlaunch.records import NamedTuple
from spawnlaunch.run.environment import ERROR_FILE
from spawnlaunch.run.routes import own_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from spawnlaunch.request import Request
    from spawnlaunch.run.decisions import Cause
    from spawnlaunch.run.worker import Launch


class LaunchOptions(NamedTuple):
    """How to run and end the workers, and where to leave word of it."""

    launch: Launch
    grace_s: float  # from SIGTERM to SIGKILL
    grace_why: str  # what is said behind a grace that is not the one asked for
    result: str | None  # file for the ends of all ranks
    error_file: str | None  # the user's TORCHELASTIC_ERROR_FILE, for the first failure


class WorkerExit(NamedTuple):
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


class LaunchResult(NamedTuple):
    """How the launch ended, or one attempt of it."""

    status: int  # the launcher's exit status
    cause: Cause | None  # None: every worker ended with 0
    exits: tuple[WorkerExit, ...] = ()  # in the order in which the workers ended
    oom: str | None = None  # evidence of the out-of-memory killer, in words
    restarted: tuple[Attempt, ...] = ()  # those before, in their order

    @property
    def first_failure(self) -> WorkerExit | None:
        """The worker whose failure ended the launch."""
        if self.cause is None or self.cause.kind != "failure":
            return None
        return next(one for one in self.exits if one.rank == self.cause.number)

    @property
    def healthy_s(self) -> float:
        """For how long it went well, in seconds."""
        first = self.first_failure
        return first.after_s if first else max(one.after_s for one in self.exits)


def launch_options(launch: Launch) -> LaunchOptions:
    """What the command line and the environment say about it. Raises UsageError."""
    request, world, environ = launch.request, launch.resolution.world, launch.environ
    result = absolute(own_file(request.result, world), "--result") if request.result else None
    error_file = environ.get(ERROR_FILE)
    error_file = own_file(error_file, world) if error_file else None
    if result or error_file:
        _check_files(request.result, result, error_file)
    grace_s, why = _grace(request, environ)
    return LaunchOptions(launch, grace_s, why, result, error_file)


def _check_files(named: str | None, result: str | None, error_file: str | None) -> None:
    """Raises UsageError; whether an error file can be written is seen after a failure, rarely."""
    from spawnlaunch.run import files

    why = result and files.refusal(result)
    if why:
        raise UsageError(f"--result {named}: {why}")
    try:
        files.resolved(error_file or "/")
    except OSError as error:
        raise UsageError(f"{ERROR_FILE}={error_file}: {error.strerror}; name another") from None


def _grace(request: Request, environ: Mapping[str, str]) -> tuple[float, str]:
    """The grace, cut where Slurm kills us before it is over, and why."""
    if not environ.get("SLURM_JOB_ID"):
        return request.grace_s, ""
    from spawnlaunch.world import slurm_site

    most_s = slurm_site.longest_grace_s(environ)
    if most_s is None or request.grace_s <= most_s:
        return request.grace_s, ""
    return most_s, f" (Slurm's KillWait is {slurm_site.kill_wait_s(environ)} s)"

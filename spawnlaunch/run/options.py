"""What a launch needs to know besides its workers."""

from __future__ import annotations

import os

from spawnlaunch.errors import UsageError
from spawnlaunch.reading import absolute
from spawnlaunch.records import NamedTuple
from spawnlaunch.request import KILL, Request
from spawnlaunch.run.restarts import Budget
from spawnlaunch.run.routes import ERROR_FILE, own_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from spawnlaunch.run.worker import Launch


class Hang(NamedTuple):
    """When to tell where the workers are."""

    timeout_s: float = 0.0  # of silence; 0: never
    ends: bool = False  # and ends the workers then
    stack_on_usr2: bool = False

    @property
    def is_wanted(self) -> bool:
        """Whether anybody may ever ask."""
        return self.timeout_s > 0 or self.stack_on_usr2


class Options(NamedTuple):
    """How to run and end the workers, and where to leave word of it."""

    grace_s: float  # from SIGTERM to SIGKILL
    scratch: str  # directory, made and removed by the launch; its name is the run's unique id
    hostname: str
    run_id: str  # the job's name, which may be that of other launches as well
    result: str | None  # file for the outcome of all ranks
    error_file: str | None  # the user's TORCHELASTIC_ERROR_FILE, for the first failure
    preload: tuple[str, ...] = ()  # modules to import before the workers are forked
    restarts: Budget = Budget()
    timeout_s: float = 0.0  # for the whole launch; 0: none
    hang: Hang = Hang()
    grace_why: str = ""  # what is said behind a grace that is not the one asked for

    @property
    def mark(self) -> str:
        """The unique id that the workers' environments bear."""
        return os.path.basename(self.scratch)


def options(launch: Launch) -> Options:
    """What the command line and the environment say about it. Raises UsageError."""
    request, world, environ = launch.request, launch.resolution.world, launch.environ
    result = absolute(own_file(request.result, world), "--result") if request.result else None
    if result:
        from spawnlaunch.run import filing  # few launches want it

        why = filing.refusal(result)
        if why:
            raise UsageError(f"--result {request.result}: {why}")
    error_file = environ.get(ERROR_FILE)
    if error_file:
        error_file = own_file(error_file, world)
        _check_links(error_file)
    grace_s, grace_why = _grace(request, environ)
    return Options(
        grace_s=grace_s,
        grace_why=grace_why,
        scratch=launch.scratch,
        hostname=launch.hostname,
        run_id=world.run_id,
        result=result,
        error_file=error_file or None,
        preload=request.preload,
        restarts=Budget(request.max_restarts, request.restart_window_s, request.no_restart_status),
        timeout_s=request.timeout_s,
        hang=Hang(request.hang_timeout_s, request.on_hang == KILL, request.stack_on_usr2),
    )


def _check_links(error_file: str) -> None:
    """Raises UsageError; whether a file can be there is seen after a failure, which is rare."""
    from spawnlaunch.run import links

    try:
        links.resolved(error_file)
    except OSError as error:
        raise UsageError(f"{ERROR_FILE}={error_file}: {error.strerror}; name another") from None


def _grace(request: Request, environ: Mapping[str, str]) -> tuple[float, str]:
    """The grace, cut where Slurm kills us before it is over, and why."""
    if not environ.get("SLURM_JOB_ID"):
        return request.grace_s, ""
    from spawnlaunch.world import slurm_conf

    most_s = slurm_conf.longest_grace_s(environ)
    if most_s is None or request.grace_s <= most_s:
        return request.grace_s, ""
    return most_s, f" (Slurm's KillWait is {slurm_conf.kill_wait_s(environ)} s)"

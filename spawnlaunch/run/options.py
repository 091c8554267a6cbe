"""What a launch needs to know besides its workers."""

import os
from collections.abc import Mapping
from typing import NamedTuple

from spawnlaunch.errors import UsageError
from spawnlaunch.request import KILL, Request
from spawnlaunch.run.restarts import Budget


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

    @property
    def mark(self) -> str:
        """The unique id that the workers' environments bear."""
        return os.path.basename(self.scratch)


def options(
    request: Request, run_id: str, environ: Mapping[str, str], hostname: str, scratch: str
) -> Options:
    """What the command line and the environment say about it. Raises UsageError."""
    result = os.path.abspath(request.result) if request.result else None
    if result and not os.access(os.path.dirname(result), os.W_OK):
        raise UsageError(
            f"--result {request.result}: no directory that can be written to is there; make it, or "
            "name another"
        )
    error_file = environ.get("TORCHELASTIC_ERROR_FILE")
    return Options(
        grace_s=request.grace_s,
        scratch=scratch,
        hostname=hostname,
        run_id=run_id,
        result=result,
        error_file=error_file or None,
        preload=request.preload,
        restarts=Budget(request.max_restarts, request.restart_window_s, request.no_restart_status),
        timeout_s=request.timeout_s,
        hang=Hang(request.hang_timeout_s, request.on_hang == KILL, request.stack_on_usr2),
    )

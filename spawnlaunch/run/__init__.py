"""Go: exec the worker in place, or start the workers and watch them."""

from __future__ import annotations

import os

from spawnlaunch.errors import UsageError
from spawnlaunch.run import logfiles, scratch, terminal
from spawnlaunch.run.routes import own_files, short
from spawnlaunch.run.worker import Launch, Worker, become

# What only a launch needs is imported by it: in task mode every import is each rank's cost.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

# Open files of a guard: of each worker a pidfd, and of each stream that is shown a pipe; and with
# its own those of a look into /proc and of a module that is imported.
OF_A_WORKER, OF_THE_GUARD = 3, 32
OF_THE_GUARD_OF_ONE = 9  # a worker alone keeps our streams

__all__ = ["in_place", "launch", "own_files", "scratch", "short", "terminal"]


def in_place(worker: Worker, mask: frozenset[int]) -> NoReturn:
    """Become the worker: signals and exit status are the resource manager's own business.

    `mask` is the signals that it is started with blocked.
    """
    logfiles.prepare([worker])
    become(worker, mask)


def launch(
    launch: Launch,
    workers: Sequence[Worker],
    mask: frozenset[int],
) -> int:
    """Start the workers and see them to their end; the result is the exit status.

    `workers` are those of the first attempt, `mask` is the signals that all are started with
    blocked. Raises UsageError where they cannot all be watched.
    """
    from spawnlaunch.run.options import options

    how = options(launch)
    _check_open_files(workers)
    from spawnlaunch.run import job, launcher

    return launcher.launch(job.Crew(workers, launch), how, mask)


def _check_open_files(workers: Sequence[Worker]) -> None:
    """A guard that may open no more files cannot even end the workers that it has."""
    kept = sum(route.file is not None and route.shown for w in workers for route in w.routes)
    guards = OF_THE_GUARD if len(workers) > 1 else OF_THE_GUARD_OF_ONE
    needed = len(workers) * OF_A_WORKER + kept + guards
    if needed <= os.sysconf("SC_OPEN_MAX"):
        return
    import resource  # the soft limit can be raised to the hard one

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if needed > most != resource.RLIM_INFINITY:
        fits = max(1, (most - OF_THE_GUARD) * len(workers) // (needed - OF_THE_GUARD))
        fewer = f"--nproc {fits}, or raise the limit: " if len(workers) > 1 else ""
        who = f"{len(workers)} workers need" if len(workers) > 1 else "one worker needs"
        raise UsageError(
            f"{who} {needed} open files, and {most} are allowed; type {fewer}ulimit -n {needed}"
        )

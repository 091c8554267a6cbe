"""Go: exec the worker in place, or start the workers and watch them."""

from collections.abc import Callable, Sequence
from typing import NoReturn

from spawnlaunch.run import logfiles, scratch, terminal
from spawnlaunch.run.worker import Worker, become

# What only a launch needs is imported by it: in task mode every import is each rank's cost.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch.run.options import Options

__all__ = ["in_place", "launch", "scratch", "terminal"]


def in_place(worker: Worker) -> NoReturn:
    """Become the worker: signals and exit status are the resource manager's own business."""
    logfiles.prepare([worker])
    become(worker, ())


def launch(
    workers: Sequence[Worker], again: Callable[[int], Sequence[Worker]], options: "Options"
) -> int:
    """Start the workers and see them to their end; the result is the exit status.

    `again` gives the workers of restart 1, 2, and so on.
    """
    from spawnlaunch.run import job, launcher

    return launcher.launch(job.Crew(workers, again), options)

"""Go: exec the worker in place, or start the workers and watch them."""

import os
from collections.abc import Sequence
from typing import NoReturn

from spawnlaunch.run.worker import Worker, become


def in_place(worker: Worker) -> NoReturn:
    """Become the worker: signals and exit status are the resource manager's own business."""
    become(worker, ())


def gang(workers: Sequence[Worker], scratch: str) -> int:
    """Start the workers and wait for them; the result is the exit status.

    The directory `scratch` exists for as long as they run.
    """
    import shutil  # not needed in task mode, where every import is each rank's cost

    from spawnlaunch.run.supervisor import supervise

    os.mkdir(scratch, mode=0o700)
    try:
        return supervise(workers)
    finally:
        shutil.rmtree(scratch)

"""The places of the ranks' files.

They are made before anybody is started, so that a place that cannot be written to is said once and
costs nothing. An error file that an earlier attempt or launch has left there is not this one's.
"""

from __future__ import annotations

import os

from spawnlaunch.errors import UsageError
from spawnlaunch.run.routes import ERROR_FILE
from spawnlaunch.run.worker import Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

ELSEWHERE = "name another directory with --log-dir"


def prepare(workers: Iterable[Worker], scratch: str | None = None) -> None:
    """Raises UsageError where one cannot be made.

    `scratch` is a directory that is ours alone, and there already; in task mode there is none.
    """
    for worker in workers:
        for directory, elsewhere in _directories(worker, scratch).items():
            _make(directory, elsewhere)
        _try_logs(worker)
        _remove_error_file(worker)


def _make(directory: str, elsewhere: str) -> None:
    from spawnlaunch.run import links  # few launches keep files

    try:
        os.makedirs(links.resolved(directory), exist_ok=True)
        links.resolved(directory)  # nor has somebody been quicker
    except OSError as error:
        raise UsageError(
            f"cannot make the directory {directory}: {error.strerror}; {elsewhere}"
        ) from None


def _try_logs(worker: Worker) -> None:
    for route in worker.routes:
        try:
            if route.file:
                os.close(route.open())
        except OSError as error:
            raise UsageError(
                f"cannot write to {route.file}: {error.strerror}; remove it, or {ELSEWHERE}"
            ) from None


def _remove_error_file(worker: Worker) -> None:
    """What cannot be removed may be a link of somebody else's, which the worker would follow."""
    path = worker.environ.get(ERROR_FILE)
    try:
        if path:
            os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise UsageError(
            f"cannot remove {path}, where rank {worker.rank} is to tell of its failure: "
            f"{error.strerror}; remove it yourself, or {ELSEWHERE}"
        ) from None


def _directories(worker: Worker, scratch: str | None) -> dict[str, str]:
    """Those to be made, each with what to type where it cannot be."""
    files = [route.file for route in worker.routes if route.file != os.devnull]
    found = {os.path.dirname(path): ELSEWHERE for path in files if path}
    error_file = worker.environ.get(ERROR_FILE)
    if error_file and os.path.dirname(error_file) != scratch:
        elsewhere = ELSEWHERE if scratch else f"name another file in {ERROR_FILE}"
        found.setdefault(os.path.dirname(error_file), elsewhere)
    return found

"""The directories of the ranks' files.

They are made before anybody is started, so that a place that cannot be written to is said once and
costs nothing.
"""

import os
from collections.abc import Iterable

from spawnlaunch.errors import UsageError
from spawnlaunch.run.worker import Worker


def make_directories(workers: Iterable[Worker]) -> None:
    """Raises UsageError where one cannot be made."""
    for worker in workers:
        for directory in {os.path.dirname(path) for path in _files(worker)}:
            try:
                os.makedirs(directory or ".", exist_ok=True)
            except OSError as error:
                raise UsageError(
                    f"cannot make the directory {directory}: {error.strerror}; name another with "
                    "--log-dir"
                ) from None


def _files(worker: Worker) -> list[str]:
    error_file = worker.environ.get("TORCHELASTIC_ERROR_FILE")
    return [path for path in (*(route.file for route in worker.routes), error_file) if path]

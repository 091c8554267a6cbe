"""The places of the ranks' files.

They are made before anybody is started, so that a place that cannot be written to is said once and
costs nothing. An error file that an earlier attempt or launch has left there is not this one's.
"""

import os
from collections.abc import Iterable
from contextlib import suppress

from spawnlaunch.errors import UsageError
from spawnlaunch.run.worker import Worker


def prepare(workers: Iterable[Worker]) -> None:
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
        with suppress(OSError, KeyError):
            os.unlink(worker.environ["TORCHELASTIC_ERROR_FILE"])


def _files(worker: Worker) -> list[str]:
    error_file = worker.environ.get("TORCHELASTIC_ERROR_FILE")
    return [path for path in (*(route.file for route in worker.routes), error_file) if path]

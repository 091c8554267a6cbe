"""Notice that no rank has written anything for a while.

What comes through our pipes is heard at once; of a worker that writes to a file by itself, the
file's time of change is looked at when the others have been silent. (A clock that is set meanwhile
can make that silence seem longer or shorter, once.)

When workers wait for a reader who does not read what they said, it is not they who are silent.
"""

from __future__ import annotations

import os
import time

from spawnlaunch.run.loop import Loop
from spawnlaunch.run.output import Output
from spawnlaunch.run.worker import Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Silence:
    """Calls `tell` whenever nothing has been said for `limit_s` seconds, again and again."""

    def __init__(self, loop: Loop, output: Output, limit_s: float, tell: Callable[[], None]):
        self._loop = loop
        self._output = output
        self._limit_s = limit_s
        self._tell = tell
        self._files: list[str] = []
        self._since = time.monotonic()

    def begin(self, workers: Sequence[Worker]) -> None:
        """Listen to these workers, who have just been started."""
        routes = (route for worker in workers for route in worker.routes)
        self._files = [route.file for route in routes if route.file and route.is_redirected]
        self.begin_anew()

    def begin_anew(self) -> None:
        """Nothing before this moment counts."""
        self._since = time.monotonic()
        self._loop.alarm(self._listen, self._limit_s)

    def cancel(self) -> None:
        """Listen no longer."""
        self._loop.alarm(self._listen, None)

    def _listen(self) -> None:
        quiet_s = self._quiet_s()
        if quiet_s < self._limit_s:
            self._loop.alarm(self._listen, self._limit_s - quiet_s)
        else:
            self.begin_anew()
            self._tell()

    def _quiet_s(self) -> float:
        if self._output.is_held_up:
            return 0.0
        ages = [time.time() - _changed(path) for path in self._files]
        quiet_s = min(time.monotonic() - self._since, self._output.silent_s, *ages)
        return max(0.0, quiet_s)


def _changed(path: str) -> float:
    """When a file was written to last, in seconds since 1970."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0

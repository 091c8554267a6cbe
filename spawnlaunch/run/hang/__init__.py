"""Help for a job that hangs: notice that no rank writes anything, and tell where the workers are.

The decisions hear of the silence (Silent), want the stacks told (TellStacks), and hear when that is
done (StacksTold).

What comes through our pipes is heard at once; of a worker that writes to a file by itself, the
file's time of change is looked at when the others have been silent. (A clock that is set meanwhile
can make that silence seem longer or shorter, once.) When workers wait for a reader who does not
read what they said, it is not they who are silent.
"""

from __future__ import annotations

import os
import time

from spawnlaunch.run.decisions import Silent, StacksTold
from spawnlaunch.run.hang.stacks import Stacks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spawnlaunch.run.decisions import Event
    from spawnlaunch.run.journal import Journal
    from spawnlaunch.run.loop import Loop
    from spawnlaunch.run.model import Launch, Worker
    from spawnlaunch.run.output import Output


class HangHelp:
    """What --hang-timeout and --stack-on-usr2 ask for; the limit is of silence, 0: never."""

    def __init__(
        self,
        launch: Launch,
        loop: Loop,
        output: Output,
        happened: Callable[[Event], None],
        journal: Journal | None,  # of --record
    ) -> None:
        self._loop = loop
        self._output = output
        self._limit_s = launch.request.hang_timeout_s
        self._happened = happened
        self._files: list[str] = []
        self._since = time.monotonic()
        self.stacks = Stacks(loop, output, launch.scratch, lambda: happened(StacksTold()), journal)

    def begin(self, workers: Sequence[Worker]) -> None:
        """Listen to these workers, who have just been started."""
        streams = (route for worker in workers for route in worker.routes)
        self._files = [route.file for route in streams if route.file and route.is_redirected]
        self.begin_anew()

    def begin_anew(self) -> None:
        """Nothing before this moment counts: workers have been started, or were stopped."""
        self._since = time.monotonic()
        self._loop.alarm(self._listen, self._limit_s or None)

    def cancel(self) -> None:
        """All workers have ended."""
        self._loop.alarm(self._listen, None)
        self.stacks.cancel()

    def _listen(self) -> None:
        quiet_s = self._quiet_s()
        if quiet_s < self._limit_s:
            self._loop.alarm(self._listen, self._limit_s - quiet_s)
        else:
            self.begin_anew()
            self._happened(Silent())

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

"""Help for a job that hangs: notice it, and tell where the workers are.

The decisions hear of the silence (Silent), want the stacks told (TellStacks), and hear when that is
done (StacksTold).
"""

from __future__ import annotations

from spawnlaunch.run import decisions
from spawnlaunch.run.loop import Loop
from spawnlaunch.run.options import Hang
from spawnlaunch.run.output import Output
from spawnlaunch.run.silence import Silence
from spawnlaunch.run.stacks import Stacks
from spawnlaunch.run.worker import Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


class HangHelp:
    """What --hang-timeout and --stack-on-usr2 ask for."""

    def __init__(
        self,
        hang: Hang,
        loop: Loop,
        output: Output,
        write: Callable[[str], None],
        happened: Callable[[decisions.Event], None],
    ) -> None:
        self._silence = None
        if hang.timeout_s:
            self._silence = Silence(
                loop, output, hang.timeout_s, lambda: happened(decisions.Silent())
            )
        self._stacks = Stacks(loop, output, write, lambda: happened(decisions.StacksTold()))

    def begin(self, workers: Sequence[Worker]) -> None:
        """Workers have just been started."""
        if self._silence:
            self._silence.begin(workers)

    def begin_anew(self) -> None:
        """Workers that were stopped go on: that they said nothing meanwhile means nothing."""
        if self._silence:
            self._silence.begin_anew()

    def tell_stacks(self, workers: Iterable[tuple[Worker, int]]) -> None:
        """Tell where these are, each with its pid."""
        self._stacks.tell(workers)

    def cancel(self) -> None:
        """All workers have ended."""
        if self._silence:
            self._silence.cancel()
        self._stacks.cancel()

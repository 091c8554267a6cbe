"""Help for a job of several nodes that hangs: each tells the others when its own ranks are silent.

Silence on one node says nothing, for its ranks may wait for another's. So here nothing follows from
it: the hub hears of it, and asks for the stacks when all nodes are silent.
"""

from __future__ import annotations

from spawnlaunch import machine
from spawnlaunch.run import hang
from spawnlaunch.run.hang import stacks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


LOOK_S = 0.2  # between two looks for the end of the silence


class HangOfAll(hang.HangHelp):
    """Tells `tell` that all ranks here are silent, and that one is not any more."""

    _is_quiet = False
    _ours_until = 0.0  # what came before were the stacks; by machine.running_s

    def __init__(self, supervisor: hang.Owner, tell: Callable[[bool], None]) -> None:
        super().__init__(supervisor)
        self._tell = tell

    def begin_anew(self) -> None:
        super().begin_anew()
        self._is_quiet = False

    def stacks_told(self) -> None:
        """What was written until now were the stacks, and no rank's own words."""
        self._ours_until = machine.running_s() + stacks.QUIET_S

    def _listen(self) -> None:
        quiet_s = self._quiet_s()
        were_stacks = self._is_quiet and (
            self.stacks.is_busy or machine.running_s() - quiet_s <= self._ours_until
        )
        is_quiet = were_stacks or quiet_s >= self._limit_s
        self._loop.alarm(self._listen, LOOK_S if is_quiet else self._limit_s - quiet_s)
        if is_quiet != self._is_quiet:
            self._is_quiet = is_quiet
            self._tell(is_quiet)

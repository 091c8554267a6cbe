"""Workers that a signal has stopped: meanwhile they can neither use their grace nor write.

the launch is stopped as a whole (SIGTSTP)   every grace stands until it goes on
a worker that was told to end is stopped     its grace stands, and STOPPED_S later it is continued
any other worker is stopped                  it stays so; the silence of all workers is no hang

The kernel reports a stop by SIGCHLD. It does not report a process that a debugger holds, or that is
frozen in a cgroup of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from spawnlaunch.base import events, machine
from spawnlaunch.base.signals import signal
from spawnlaunch.run import decisions
from spawnlaunch.run.processes import Processes


class Stops:
    """The workers of a launch that are stopped."""

    def __init__(
        self,
        loop: events.Loop,
        processes: Processes,
        rules: Callable[[], decisions.Decisions],
        on_change: Callable[[], object],
    ) -> None:
        self._loop, self._processes, self._rules = loop, processes, rules
        self._on_change, self._stands = on_change, False
        self._pids: set[int] = set()  # of children; a number is a worker's while that one runs

    def workers(self) -> dict[int, int]:
        """The pids of stopped workers, by their ranks."""
        running = self._processes.by_rank.items()
        return {rank: one.pid for rank, one in running if one.pid in self._pids}

    def hear(self) -> None:
        """Note which workers were stopped, and which go on."""
        before = self.workers()
        with suppress(AttributeError, OSError):  # there is none, or no waitid (macOS)
            while told := machine.waitid(os.P_ALL, 0, os.WSTOPPED | os.WCONTINUED | os.WNOHANG):
                goes_on = told.si_code == os.CLD_CONTINUED
                (self._pids.discard if goes_on else self._pids.add)(told.si_pid)
        if self.workers() != before:
            self._on_change()

    def heed(self) -> bool:
        """Act on stopped workers and the launch's state; the result is whether the time stands."""
        rules, loop = self._rules(), self._loop
        is_one_told = (
            rules.stage == decisions.STOPPING and not rules.is_suspended and bool(self.workers())
        )
        if is_one_told and not self._stands:
            loop.alarm(self._continue, decisions.STOPPED_S, always=True)
        self._stands = is_one_told or (rules.is_suspended and rules.stage != decisions.KILLING)
        return self._stands

    def _continue(self) -> None:
        stopped = frozenset(self.workers())
        self._pids.clear()  # a worker that we may not signal has no more time than others
        if not self._rules().is_suspended:
            self._processes.send(signal.SIGCONT, stopped)

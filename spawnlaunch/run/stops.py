"""Workers that a signal has stopped: nobody can use its grace, or say anything, meanwhile.

the launch is stopped as a whole (SIGTSTP)   every grace stands until it goes on
a worker that was told to end is stopped     its grace stands, and STOPPED_S later it is continued
any other worker is stopped                  it stays so; that nobody writes anything is no hang

The kernel tells by SIGCHLD. It does not tell of a process that a debugger holds, or that is frozen
in a cgroup of its own.
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
    """Which workers are stopped."""

    def __init__(
        self,
        loop: events.Loop,
        processes: Processes,
        rules: Callable[[], decisions.Decisions],
        on_change: Callable[[], object],
    ) -> None:
        self._loop, self._processes, self._rules = loop, processes, rules
        self._on_change = on_change
        self._pids: set[int] = set()  # of children; a number is a worker's while that one runs

    def workers(self) -> dict[int, int]:
        """The pids of those who are stopped, by their ranks."""
        running = self._processes.by_rank.items()
        return {rank: one.pid for rank, one in running if one.pid in self._pids}

    def hear(self) -> None:
        """Take note of who was stopped, and who goes on."""
        before = self.workers()
        with suppress(AttributeError, OSError):  # there is none, or no waitid (macOS)
            while told := machine.waitid(os.P_ALL, 0, os.WSTOPPED | os.WCONTINUED | os.WNOHANG):
                goes_on = told.si_code == os.CLD_CONTINUED
                (self._pids.discard if goes_on else self._pids.add)(told.si_pid)
        if self.workers() != before:
            self._on_change()

    def heed(self) -> bool:
        """Do what follows from who is stopped, and from the launch's state: does its time stand?"""
        rules, loop = self._rules(), self._loop
        is_one_told = (
            rules.stage == decisions.STOPPING and not rules.is_suspended and bool(self.workers())
        )
        if is_one_told and not loop.stands:
            loop.alarm(self._continue, decisions.STOPPED_S, always=True)
        return is_one_told or (rules.is_suspended and rules.stage != decisions.KILLING)

    def _continue(self) -> None:
        stopped = frozenset(self.workers())
        self._pids.clear()  # one that is not ours to signal has no more time than others
        if not self._rules().is_suspended:
            self._processes.send(signal.SIGCONT, stopped)

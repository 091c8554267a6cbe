"""Calls about signals that this process gets."""

from __future__ import annotations

import errno
import signal
from collections.abc import Iterable
from typing import Any

from tests.machine.descriptors import SignalFd
from tests.machine.door.calls import Calls
from tests.machine.errors import refused
from tests.machine.process import NEVER, SI_KERNEL, Info


class Signals(Calls):
    def pthread_sigmask(self, how: int, signums: Iterable[int]) -> set[int]:
        process = self.begin("rt_sigprocmask")
        before, given = process.blocked, frozenset(map(int, signums)) - NEVER
        if how == signal.SIG_BLOCK:
            process.blocked |= given
        elif how == signal.SIG_UNBLOCK:
            process.blocked -= given
        else:
            process.blocked = given
        process.deliver()
        return set(before)

    def signal(self, signum: int, handler: Any) -> Any:
        process = self.begin("rt_sigaction")
        if signum in NEVER:
            raise refused(errno.EINVAL)
        before = process.handlers.get(int(signum), signal.SIG_DFL)
        process.handlers[int(signum)] = handler
        if process.ignores(signum):
            process.pending.pop(int(signum), None)  # POSIX: it is discarded
        return before

    def getsignal(self, signum: int) -> Any:
        process = self._kernel.current
        assert process is not None
        return process.handlers.get(int(signum), signal.SIG_DFL)

    def set_wakeup_fd(self, fd: int, warn_on_full_buffer: bool = True) -> int:
        process = self.begin("fcntl")
        before, process.wakeup_fd = process.wakeup_fd, fd
        return before

    def setitimer(self, which: int, seconds: float) -> None:
        process = self.begin("setitimer")
        process.alarms += 1
        number, signum = process.alarms, int(signal.SIGALRM)

        def over() -> None:
            if process.alarms == number:
                process.get_signal(signum, Info(signum, SI_KERNEL))

        if seconds:
            process.kernel.at(process.kernel.now + seconds, over)

    def signalfd(self, signums: Iterable[int]) -> int | None:
        try:
            process = self.begin("signalfd4")
            return process.put(SignalFd(process, frozenset(map(int, signums))).held())
        except OSError:
            return None  # as the door has it

"""Wait for several descriptors at once, and call who waits for each.

epoll hands out descriptors in the order in which they became ready: with a pidfd for every worker
that is the order of their exits, which `waitid` does not tell. Where there is no epoll, poll does
the same without the order. Whoever waits for a time has an alarm.
"""

from __future__ import annotations

import os
import select
import time

from spawnlaunch.run.signals import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# The kernel takes milliseconds in an int, which is 24 days (epoll_wait(2), poll(2)). Whoever waits
# for longer than this waits again.
LONGEST_S = 86400.0


class Loop:
    """Descriptors that are waited for. They stay their owners' to close."""

    def __init__(self) -> None:
        self._calls: dict[int, Callable[[], None]] = {}
        self._alarms: dict[Callable[[], None], float] = {}  # monotonic clock, seconds
        if hasattr(select, "epoll"):
            self._poller: select.epoll | select.poll = select.epoll()
            self._per_second = 1
        else:
            self._poller = select.poll()
            self._per_second = 1000

    def watch(self, fd: int, call: Callable[[], None], events: int = select.POLLIN) -> None:
        """Call `call` whenever `fd` can be read (or written to), or its other end is closed."""
        self._poller.register(fd, events)
        self._calls[fd] = call

    def forget(self, fd: int) -> None:
        """Watch `fd` no longer; to be called before it is closed."""
        self._poller.unregister(fd)
        del self._calls[fd]

    def alarm(self, call: Callable[[], None], after_s: float | None) -> None:
        """Call `call` once, after so many seconds; each has one alarm, and None takes it back."""
        self._alarms.pop(call, None)
        if after_s is not None:
            self._alarms[call] = time.monotonic() + after_s

    def turn(self, timeout_s: float | None = None) -> None:
        """Wait until something is ready, and make the calls; at most `timeout_s` (None: long).

        It may come back earlier, with nothing done. A call may forget descriptors that are ready
        too: they are not called any more.
        """
        now = time.monotonic()
        lefts = [LONGEST_S, *(when - now for when in self._alarms.values())]
        if timeout_s is not None:
            lefts.append(timeout_s)
        timeout = max(0.0, min(lefts)) * self._per_second
        for fd, _ in self._poller.poll(timeout):
            call = self._calls.get(fd)
            if call:
                call()
        now = time.monotonic()
        for due in [call for call, when in self._alarms.items() if when <= now]:
            if self._alarms.get(due, now + 1) <= now:  # an earlier one may have taken it back
                del self._alarms[due]
                due()


class SignalPipe:
    """Signals as bytes in a pipe: the handlers in C write their numbers, and nothing else runs."""

    def __init__(self, caught: Iterable[int]) -> None:
        self.caught = frozenset(caught)
        self.fd, self._end = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._end, False)
        signal.set_wakeup_fd(self._end, warn_on_full_buffer=False)
        for signum in self.caught:
            signal.signal(signum, lambda *_: None)  # without a handler nothing is written

    def read(self) -> list[int]:
        """The signals that came since the last call, in their order."""
        try:
            return list(os.read(self.fd, 4096))
        except BlockingIOError:
            return []

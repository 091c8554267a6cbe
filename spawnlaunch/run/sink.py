"""One of the launcher's own outputs, on which several workers are shown. Writing never waits.

Where nobody reads, what is to be written waits in a queue, and those who fill it are told to stop
until there is room again; so a slow reader slows the workers, and the launcher goes on watching.
"""

import os
import select
import stat
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from spawnlaunch.run.lines import Screen
from spawnlaunch.run.loop import Loop

HIGH_BYTES, LOW_BYTES = 1 << 20, 1 << 18  # waiting to be written: stop reading, and go on


class Sink:
    """A descriptor to write to, and the queue before it."""

    def __init__(self, fd: int, loop: Loop) -> None:
        self.screen = Screen()
        self.lost = False  # nobody will ever read again
        self.size = 0  # bytes that wait to be written
        self.is_terminal = os.isatty(fd)
        self._fd, self._write = _without_waiting(fd)
        self._loop = loop
        self._queue: deque[bytes] = deque()
        self._waiting = False
        self._calls: list[Callable[[bool], None]] = []

    def tell(self, call: Callable[[bool], None]) -> None:
        """Call `call` with False when too much waits, and with True when there is room again."""
        self._calls.append(call)

    def tell_no_more(self, call: Callable[[bool], None]) -> None:
        """Forget a call of `tell`."""
        self._calls.remove(call)

    @property
    def is_full(self) -> bool:
        """Whether too much waits."""
        return self.size > HIGH_BYTES

    def put(self, data: bytes) -> None:
        """Write, now or later; in the order of the calls."""
        if not data or self.lost:
            return
        was_full = self.is_full
        self._queue.append(data)
        self.size += len(data)
        if not self._waiting:
            self._pump()
        if self.is_full and not was_full:
            self._tell(False)

    def _pump(self) -> None:
        before = self.size
        while self._queue:
            try:
                written = self._write(self._queue[0])
            except BlockingIOError:
                break
            except OSError:
                self.give_up()  # its reader has gone
                return
            self.size -= written
            rest = self._queue.popleft()[written:]
            if rest:
                self._queue.appendleft(rest)
        self._wait(bool(self._queue))
        if self.size <= LOW_BYTES < before:
            self._tell(True)

    def _wait(self, wait: bool) -> None:
        if wait and not self._waiting:
            self._loop.watch(self._fd, self._pump, select.POLLOUT)
        elif self._waiting and not wait:
            self._loop.forget(self._fd)
        self._waiting = wait

    def give_up(self) -> int:
        """Write no more; the result is the number of bytes that were to be written."""
        dropped, self.size, self.lost = self.size, 0, True
        self._queue.clear()
        self._wait(False)
        self._tell(True)
        return dropped

    def _tell(self, go_on: bool) -> None:
        for call in list(self._calls):
            call(go_on)


def _without_waiting(fd: int) -> tuple[int, Callable[[bytes], int]]:
    """The same output without waiting, and without changing it for others who have it.

    The result is a descriptor to wait for, and how to write to it. A pipe or a terminal is opened
    once more; where that is refused, what we have must do. A regular file never waits.
    """
    kind = os.fstat(fd).st_mode
    if stat.S_ISSOCK(kind):
        import socket  # few outputs are one

        connection = socket.socket(fileno=os.dup(fd))
        return connection.fileno(), lambda data: connection.send(data, socket.MSG_DONTWAIT)
    if stat.S_ISFIFO(kind) or stat.S_ISCHR(kind):
        with suppress(OSError):
            fd = os.open(f"/dev/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    return fd, lambda data: os.write(fd, data)

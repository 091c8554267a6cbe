"""One of the launcher's own outputs, on which several workers are shown. Writing never waits.

Where nobody reads, what is to be written waits in a queue, and those who fill it are told to stop
until there is room again; so a slow reader slows the workers, and the launcher goes on watching.

An output that cannot be written to (a full disk) is given up, and the workers go on.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from collections import deque
from contextlib import suppress

from spawnlaunch.run.lines import Screen
from spawnlaunch.run.loop import Loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

UNREAD_S = 30.0  # with too much waiting: a reader that takes nothing for so long is told of
HIGH_BYTES, LOW_BYTES = 1 << 20, 1 << 18  # waiting to be written: stop reading, and go on


class Sink:
    """A descriptor to write to, and the queue before it."""

    def __init__(
        self, fd: int, loop: Loop, failed: Callable[[OSError], None], unread: Callable[[], None]
    ) -> None:
        self.screen = Screen()
        self.reader_gone = False  # nobody will ever read again
        self.error: OSError | None = None  # why nothing can be written any more
        self.size = 0  # bytes that wait to be written
        self.lost = 0  # bytes that an error has cost
        self.last_write = time.monotonic()
        self.is_terminal = os.isatty(fd)
        self._fd, self._write = _without_waiting(fd)
        self._loop = loop
        self._failed = failed
        self._unread = unread
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
        if self.error:
            self.lost += len(data)
        if not data or self.error or self.reader_gone:
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
            except OSError as error:
                self._end(error)
                return
            self.size -= written
            rest = self._queue.popleft()[written:]
            if rest:
                self._queue.appendleft(rest)
        if self.size < before:
            self.last_write = time.monotonic()
        self._wait(bool(self._queue))
        if self.size <= LOW_BYTES < before:
            self._tell(True)

    def _end(self, error: OSError) -> None:
        """The reader has gone, as readers do, or something is wrong."""
        if error.errno in (errno.EPIPE, errno.ECONNRESET):
            self.reader_gone = True
            self.give_up()
        else:
            self.error = error
            self.lost = self.give_up()
            self._failed(error)

    def _wait(self, wait: bool) -> None:
        if wait and not self._waiting:
            self._loop.watch(self._fd, self._pump, select.POLLOUT)
        elif self._waiting and not wait:
            self._loop.forget(self._fd)
        self._waiting = wait

    def give_up(self) -> int:
        """Forget what waits; the result is the number of bytes that were to be written so far."""
        dropped = self.size + self.lost
        self.size = self.lost = 0
        self._queue.clear()
        self._wait(False)
        self._tell(True)
        return dropped

    def _tell(self, go_on: bool) -> None:
        self._loop.alarm(self._look, None if go_on else UNREAD_S)
        for call in list(self._calls):
            if not (go_on and self.is_full):  # by an earlier one
                call(go_on)

    def _look(self) -> None:
        """Whether anybody reads."""
        left_s = self.last_write + UNREAD_S - time.monotonic()
        if left_s > 0:
            self._loop.alarm(self._look, left_s)
        else:
            self._unread()


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

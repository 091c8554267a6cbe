"""What one worker writes to one of its streams, read from a pipe: for the screen and for a file."""

import os
import time

from spawnlaunch.run.lines import Stream
from spawnlaunch.run.loop import Loop
from spawnlaunch.run.routes import Route
from spawnlaunch.run.say import say
from spawnlaunch.run.sink import Sink

CHUNK_BYTES = 1 << 16  # the size of a pipe
TAIL_BYTES = 1 << 14  # of what a worker said last, for the report of a failure


class Source:
    """The pipe, as far as it has been read.

    Without a sink nobody is shown what comes; a file gets it as it is. Where the sink's reader has
    gone and no file is kept either, the pipe is closed, so that the worker hears of it as it would
    without us.
    """

    def __init__(self, fd: int, loop: Loop, sink: Sink | None, prefix: bytes, route: Route):
        self.tail = b""
        self.received = 0  # bytes, since the beginning
        self.last_read = time.monotonic()
        self._fd: int | None = fd
        self._loop = loop
        self._sink = sink
        self._stream = Stream(prefix, sink.screen) if sink else None
        self._path = route.file
        self._file = None if route.file is None else route.open()
        self._watched = False
        if sink:
            sink.tell(self._go_on)
        self._go_on(not (sink and sink.is_full))

    @property
    def is_open(self) -> bool:
        """Whether more may come."""
        return self._fd is not None

    @property
    def is_shown(self) -> bool:
        """Whether what comes is seen by our own reader."""
        return self._sink is not None

    @property
    def holds_more(self) -> bool:
        """Whether there is something in the pipe."""
        return self._fd is not None and _left_in(self._fd) > 0

    def read_all(self) -> None:
        """Read what the pipe holds now: of a worker that has ended, its last words."""
        while self.holds_more:
            self._read()

    def close(self) -> int:
        """Read no more; the result is the number of bytes that were there to be read."""
        if self._fd is None:
            return 0
        left = _left_in(self._fd)
        self._end()
        return left

    def _read(self) -> None:
        assert self._fd is not None
        chunk = os.read(self._fd, CHUNK_BYTES)
        if not chunk:
            self._end()
            return
        self.last_read = time.monotonic()
        self.received += len(chunk)
        self.tail = (self.tail + chunk[-TAIL_BYTES:])[-TAIL_BYTES:]
        self._keep(chunk)
        if self._stream and self._sink:
            self._sink.put(self._stream.feed(chunk))
            if self._sink.lost and self._file is None:
                self._end()

    def _keep(self, chunk: bytes) -> None:
        """Add to the file; one that cannot be written is given up, and the worker goes on."""
        data = memoryview(chunk)
        while self._file is not None and data:
            try:
                data = data[os.write(self._file, data) :]
            except OSError as error:
                say([f"cannot write to {self._path}: {error.strerror}; it ends here"])
                os.close(self._file)
                self._file = None

    def _go_on(self, go_on: bool) -> None:
        """Whether to read on, as the sink wishes."""
        if self._fd is None or self._watched == go_on:
            return
        self._watched = go_on
        if go_on:
            self._loop.watch(self._fd, self._read)
        else:
            self._loop.forget(self._fd)

    def _end(self) -> None:
        """The last line may have no newline."""
        assert self._fd is not None
        self._go_on(False)
        os.close(self._fd)
        self._fd = None
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if self._stream and self._sink:
            self._sink.tell_no_more(self._go_on)
            self._sink.put(self._stream.finish())


def _left_in(fd: int) -> int:
    """How many bytes a pipe holds."""
    from array import array
    from fcntl import ioctl
    from termios import FIONREAD

    count = array("i", [0])
    ioctl(fd, FIONREAD, count)
    return count[0]

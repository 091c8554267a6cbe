"""What one worker writes to one of its streams, read from a pipe: for the screen and for a file."""

from __future__ import annotations

import os
import time

from spawnlaunch.run.lines import Stream
from spawnlaunch.run.loop import Loop
from spawnlaunch.run.routes import Route
from spawnlaunch.run.sink import Sink

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK_BYTES = 1 << 16  # the size of a pipe
TAIL_BYTES = 1 << 14  # of what a worker said last, for the report of a failure
STOPPED_S = 10.0  # without taking anything, while too much waits: such a reader has stopped


class Source:
    """The pipe, as far as it has been read.

    Without a sink nobody is shown what comes; a file gets it as it is, and whole: where the sink's
    reader has stopped, what comes goes to the file alone. Where the reader has gone and no file is
    kept, the pipe is closed, so that the worker hears of it as it would without us.

    `lost` is called with words for what a file has lost.
    """

    def __init__(
        self, fd: int, loop: Loop, sink: Sink | None, prefix: bytes, route: Route,
        lost: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.tail = b""
        self.received = 0  # bytes, since the beginning
        self.last_read = time.monotonic()
        self._fd: int | None = fd
        self._loop = loop
        self._sink = sink
        self._stream = Stream(prefix, sink.screen) if sink else None
        self._path = route.file
        self._file = None if route.file is None else route.open()
        self._lost = lost
        self._unshown: int | None = None  # bytes for the file alone; None: all is shown
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
    def is_held_up(self) -> bool:
        """Whether the worker may wait for our own reader."""
        return self._fd is not None and not self._watched

    def read_all(self) -> None:
        """Read what the pipe holds now: of a worker that has ended, its last words."""
        end = self.received + (0 if self._fd is None else _left_in(self._fd))
        while self._fd is not None and self.received < end:
            self._read()

    def close(self) -> int:
        """Read what the pipe holds, and no more; the result is how many bytes were not shown."""
        self.read_all()
        if self._fd is not None:
            self._end()
        return self._unshown or 0

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
        if self._unshown is not None:
            self._unshown += len(chunk)
        elif self._stream and self._sink:
            self._sink.put(self._stream.feed(chunk))
            if self._sink.reader_gone and self._path is None:
                self._end()

    def _keep(self, chunk: bytes) -> None:
        """Add to the file; one that cannot be written is given up, and the worker goes on."""
        data = memoryview(chunk)
        while self._file is not None and data:
            try:
                data = data[os.write(self._file, data) :]
            except OSError as error:
                os.close(self._file)
                self._file = None
                self._lost(f"cannot write to {self._path}: {error.strerror}; it ends here")

    def _go_on(self, go_on: bool) -> None:
        """Whether to read on, as the sink wishes."""
        if self._fd is None:
            return
        if self._file is not None:
            self._loop.alarm(self._skip, None if go_on else STOPPED_S)
        if go_on and self._unshown is not None:
            self._show_again()
        self._watch(go_on)

    def _watch(self, watch: bool) -> None:
        if watch == self._watched or self._fd is None:
            return
        self._watched = watch
        if watch:
            self._loop.watch(self._fd, self._read)
        else:
            self._loop.forget(self._fd)

    def _skip(self) -> None:
        """Show nothing for now, where the reader has stopped."""
        assert self._sink
        stopped_s = time.monotonic() - self._sink.last_write
        if stopped_s < STOPPED_S:
            self._loop.alarm(self._skip, STOPPED_S - stopped_s)
        else:
            self._unshown = 0
            self._watch(True)

    def _show_again(self) -> None:
        """Go on after a gap, and name it."""
        assert self._stream
        assert self._sink
        note = f"spawnlaunch: {self._unshown} bytes are not shown; they are in {self._path}\n"
        self._unshown = None
        whole = self._stream.finish() + self._stream.feed(note.encode(errors="backslashreplace"))
        self._sink.put(whole)

    def _end(self) -> None:
        """The last line may have no newline."""
        assert self._fd is not None
        self._watch(False)
        self._loop.alarm(self._skip, None)
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

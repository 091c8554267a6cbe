"""The workers' output, from their pipes (Source) to the launcher's own outputs (Sink).

Writing never waits. Where no reader takes it, output waits in a queue, and the sources that fill
the queue pause until there is room again; so a slow reader slows the workers, and the launcher goes
on watching. An output that cannot be written to (a full disk) is given up, and the workers go on.
"""

from __future__ import annotations

import errno
import os
import select
import stat
from collections.abc import Callable

from spawnlaunch.base import events, machine
from spawnlaunch.output import lines
from spawnlaunch.workers import files, launches

UNREAD_S = 30.0  # with too much waiting: a reader that takes nothing for so long is told of
HIGH_BYTES, LOW_BYTES = 1 << 20, 1 << 18  # waiting to be written: stop reading, and go on
CHUNK_BYTES = 1 << 16  # the size of a pipe
TAIL_BYTES = 1 << 14  # of a worker's last output, for the report of a failure
PROMPT_S = 0.3  # without the rest of a line: on a terminal its beginning is shown
STOPPED_S = 10.0  # without taking anything, while too much waits: such a reader has stopped


class Sink:
    """A descriptor to write to, and the queue of data before it."""

    def __init__(
        self,
        fd: int,
        loop: events.Loop,
        failed: Callable[[OSError], None],
        unread: Callable[[], None],
    ) -> None:
        self.screen = lines.Screen()
        self.has_no_reader = False  # the output has no reader any more
        self.error: OSError | None = None  # why nothing can be written any more
        self.dropped_bytes = 0  # that an error has cost
        self.last_write = machine.running_s()
        self.is_terminal = machine.isatty(fd)
        self._fd, self._write = _without_waiting(fd)
        self._loop = loop
        self._failed = failed
        self._unread = unread
        self.queue = bytearray()  # the data that waits to be written
        self._waiting = False
        self.sources: list[Source] = []  # told when too much waits, and when there is room again
        self._last: Source | None = None  # the source of the last output; how many bytes in a row
        self._in_a_row = 0

    @property
    def is_full(self) -> bool:
        """Whether the queue is full."""
        return len(self.queue) > HIGH_BYTES

    def put(self, data: bytes) -> None:
        """Write the data, now or later, in the order of the calls."""
        if self.error:
            self.dropped_bytes += len(data)
        if not data or self.error or self.has_no_reader:
            return
        was_full = self.is_full
        self.queue += data
        if not self._waiting:
            self._pump()
        if self.is_full and not was_full:
            self._set_sources_reading(False)

    def note(self, source: Source, size: int) -> None:
        """Note that `size` bytes of a worker's output were put."""
        if self._last is not source:
            self._last, self._in_a_row = source, 0
        self._in_a_row += size

    @property
    def shown_last(self) -> bytes:
        """The text of one worker's stream since any other; b"": not all of it was written."""
        if self._last is None or self.error or self.has_no_reader:
            return b""
        return self._last.tail[-self._in_a_row :]

    def _pump(self) -> None:
        before = len(self.queue)
        while self.queue:
            try:
                written = self._write(self.queue)
            except BlockingIOError:
                break
            except OSError as error:
                self._end(error)
                return
            del self.queue[:written]
        if len(self.queue) < before:
            self.last_write = machine.running_s()
        self._wait(bool(self.queue))
        if len(self.queue) <= LOW_BYTES < before:
            self._set_sources_reading(True)

    def _end(self, error: OSError) -> None:
        """Give the output up after an error: its reader has gone, or a write has failed."""
        if error.errno in (errno.EPIPE, errno.ECONNRESET):
            self.has_no_reader = True
            self.give_up()
        else:
            self.error = error
            self.dropped_bytes = self.give_up()
            self._failed(error)

    def _wait(self, wait: bool) -> None:
        if wait and not self._waiting:
            self._loop.watch(self._fd, self._pump, select.POLLOUT)
        elif self._waiting and not wait:
            self._loop.forget(self._fd)
        self._waiting = wait

    def give_up(self) -> int:
        """Drop the data that waits; the result is the number of bytes to be written until now."""
        dropped = len(self.queue) + self.dropped_bytes
        self.dropped_bytes = 0
        self.queue.clear()
        self._wait(False)
        self._set_sources_reading(True)
        return dropped

    def _set_sources_reading(self, go_on: bool) -> None:
        self._loop.alarm(self._look, None if go_on else UNREAD_S)
        for source in list(self.sources):
            if not (go_on and self.is_full):  # by an earlier one
                source.set_reading(go_on)

    def _look(self) -> None:
        """Report an output that has not been read for UNREAD_S."""
        remaining_s = self.last_write + UNREAD_S - machine.running_s()
        if remaining_s > 0:
            self._loop.alarm(self._look, remaining_s)
        else:
            self._unread()


def _without_waiting(fd: int) -> tuple[int, Callable[[bytearray], int]]:
    """Open the same output without waiting, and without changing it for other processes.

    The result is a descriptor to wait for, and a function that writes to it. A pipe or a terminal
    is opened once more; a socket cannot be, nor a file of another user. A regular file never waits.
    """
    if not stat.S_ISREG(machine.fstat(fd).st_mode):
        try:
            fd = machine.open(f"/dev/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError:
            poller = machine.poll()
            poller.register(fd, select.POLLOUT)

            def write_now(data: bytearray) -> int:
                if not poller.poll(0):
                    raise BlockingIOError
                return machine.write_now(fd, bytes(data[: select.PIPE_BUF]))

            return fd, write_now
    return fd, lambda data: machine.write(fd, data)


class Source:
    """The pipe that a worker writes to: it is read, shown through the sink, and kept in a file.

    Without a sink nothing is shown. A file gets all, as it was written: where the sink's reader
    has stopped, the file alone gets it. Where the reader has gone and no file is kept, the pipe is
    closed, so that the worker has an error (EPIPE), as it would have without us.

    `report_loss` is called with a message about output that a file has lost.
    """

    def __init__(
        self, fd: int, loop: events.Loop, sink: Sink | None, prefix: bytes, route: launches.Route,
        report_loss: Callable[[str], None], rank: int,
    ) -> None:  # fmt: skip
        self.tail = b""
        self.received = 0  # bytes, since the beginning
        self.last_read = machine.running_s()
        self._fd: int | None = fd
        machine.set_blocking(fd, False)
        self._loop = loop
        self._sink = sink
        self._stream = lines.Stream(prefix, sink.screen if sink else lines.Screen())
        self._path = route.file
        self._file: int | None = None
        if route.file is not None:
            self._file = files.open_log(route)
        self._report_loss = report_loss
        self.rank = rank  # of the source's worker
        self._note: Callable[[float], None] | None = None
        self._unshown: int | None = None  # bytes for the file alone; None: all is shown
        self._watched = False
        if sink:
            sink.sources.append(self)
        self.set_reading(not (sink and sink.is_full))

    @property
    def is_open(self) -> bool:
        """Whether more output may come."""
        return self._fd is not None

    @property
    def is_blocked(self) -> bool:
        """Whether the worker may wait for our own reader."""
        return self._fd is not None and not self._watched

    def call_on_reads(self, note: Callable[[float], None]) -> None:
        """Call `note` with the time of each read, and with that of the last one until now."""
        self._note = note
        note(self.last_read)

    def read_all(self) -> None:
        """Read all that the pipe holds now: of a worker that has ended, its last output."""
        end = self.received + (0 if self._fd is None else machine.size_of(self._fd))
        before = -1
        while self._fd is not None and before < self.received < end:
            before = self.received
            self._read()

    def close(self) -> int:
        """Read the rest of the pipe; the result is how many bytes were not shown."""
        self.read_all()
        self._end()
        return self._unshown or 0

    def _read(self) -> None:
        assert self._fd is not None
        try:
            chunk = machine.read(self._fd, CHUNK_BYTES)
        except BlockingIOError:  # a worker has read its own stdout, as by /dev/stdout
            return
        if not chunk:
            self._end()
            return
        self.last_read = machine.running_s()
        if self._note:
            self._note(self.last_read)
        self.received += len(chunk)
        self.tail = (self.tail + chunk[-TAIL_BYTES:])[-TAIL_BYTES:]
        self._keep(chunk)
        self._show(chunk)

    def _show(self, chunk: bytes) -> None:
        """Show the chunk that the worker wrote, now or when it is a line."""
        if self._unshown is not None:
            self._unshown += len(chunk)
        elif self._sink:
            self._sink.put(self._stream.feed(chunk))
            self._sink.note(self, len(chunk))
            if self._sink.is_terminal:
                self._loop.alarm(self._reveal, PROMPT_S)
            if self._sink.has_no_reader and self._path is None:
                self._end()

    def _reveal(self) -> None:
        """Show the beginning of a line, which may be a prompt."""
        assert self._sink
        self._sink.put(self._stream.reveal())

    def _keep(self, chunk: bytes) -> None:
        """Add the chunk to the file; an unwritable file is given up, and the worker goes on."""
        data = memoryview(chunk)
        while self._file is not None and data:
            try:
                data = data[machine.write(self._file, data) :]
            except OSError as error:
                machine.close(self._file)
                self._file = None
                self._report_loss(f"cannot write to {self._path}: {error.strerror}; it ends here")

    def set_reading(self, wanted: bool) -> None:
        """Read on, or leave the worker's output in its pipe, as the sink needs."""
        if self._fd is None:
            return
        if self._file is not None:
            self._loop.alarm(self._skip, None if wanted else STOPPED_S)
        if wanted and self._unshown is not None and self._sink:  # after a gap, which is named
            note = f"spawnlaunch: {self._unshown} bytes are not shown; they are in {self._path}\n"
            self._unshown = None
            before, data = self._stream.finish(), note.encode(errors="backslashreplace")
            self._sink.put(before + self._stream.feed(data))
        self._watch(wanted)

    def _watch(self, watch: bool) -> None:
        if watch == self._watched or self._fd is None:
            return
        self._watched = watch
        if watch:
            self._loop.watch(self._fd, self._read)
        else:
            self._loop.forget(self._fd)

    def _skip(self) -> None:
        """Show nothing for now, because the reader has stopped."""
        assert self._sink
        stopped_s = machine.running_s() - self._sink.last_write
        if stopped_s < STOPPED_S:
            self._loop.alarm(self._skip, STOPPED_S - stopped_s)
        else:
            self._unshown = 0
            self._watch(True)

    def _end(self) -> None:
        """Close the pipe and the file, and show the last line, which may have no newline."""
        if self._fd is None:
            return
        self._watch(False)
        self._loop.alarm(self._skip, None)
        machine.close(self._fd)
        self._fd = None
        if self._file is not None:
            machine.close(self._file)
            self._file = None
        if self._sink:
            self._sink.sources.remove(self)
            if rest := self._stream.finish():
                self._sink.put(rest)

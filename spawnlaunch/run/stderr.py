"""The workers' stderr, on its way to ours: whole lines, none lost, and the last ones kept.

Of several workers each has a pipe for its stderr, so that no traceback is torn by another one, and
the first failure's can be shown again, last. Where nobody reads our stderr the pipes are not read
either, so that a slow reader slows the workers; where its reader has gone, the pipes are closed, so
that the workers hear of it as they would without us.
"""

import os
import select
import stat
from collections import deque
from collections.abc import Callable

from spawnlaunch.run.lines import Screen, Stream
from spawnlaunch.run.loop import Loop

CHUNK_BYTES = 1 << 16  # the size of a pipe
HIGH_BYTES, LOW_BYTES = 1 << 20, 1 << 18  # waiting to be written: stop reading, and go on
TAIL_BYTES = 1 << 14  # of what a worker said last, for the report of a failure


class Sink:
    """The launcher's stderr. Writing never waits."""

    def __init__(self, fd: int, loop: Loop) -> None:
        self.screen = Screen()
        self.lost = False  # nobody will ever read again
        self._fd = _without_waiting(fd)
        self._loop = loop
        self._queue: deque[bytes] = deque()
        self._size = 0
        self._waiting = False
        self._calls: list[Callable[[bool], None]] = []

    @property
    def size(self) -> int:
        """The bytes that wait to be written."""
        return self._size

    def tell(self, call: Callable[[bool], None]) -> None:
        """Call `call` with False when too much waits, and with True when there is room again."""
        self._calls.append(call)

    def put(self, data: bytes) -> None:
        """Write, now or later; in the order of the calls."""
        if not data or self.lost:
            return
        before = self._size
        self._queue.append(data)
        self._size += len(data)
        if not self._waiting:
            self._pump()
        if before <= HIGH_BYTES < self._size:
            self._tell(False)

    def _pump(self) -> None:
        before = self._size
        while self._queue:
            try:
                written = os.write(self._fd, self._queue[0])
            except BlockingIOError:
                break
            except OSError:
                self.give_up()  # its reader has gone
                return
            self._size -= written
            rest = self._queue.popleft()[written:]
            if rest:
                self._queue.appendleft(rest)
        self._wait(bool(self._queue))
        if self._size <= LOW_BYTES < before:
            self._tell(True)

    def _wait(self, wait: bool) -> None:
        if wait and not self._waiting:
            self._loop.watch(self._fd, self._pump, select.POLLOUT)
        elif self._waiting and not wait:
            self._loop.forget(self._fd)
        self._waiting = wait

    def give_up(self) -> int:
        """Write no more; the result is the number of bytes that were to be written."""
        dropped, self._size, self.lost = self._size, 0, True
        self._queue.clear()
        self._wait(False)
        self._tell(True)
        return dropped

    def _tell(self, go_on: bool) -> None:
        for call in self._calls:
            call(go_on)


def _without_waiting(fd: int) -> int:
    """The same output, without waiting, and without changing it for others who have it.

    A pipe or a terminal is opened once more; where that is refused, and for sockets, what we have
    must do. A regular file never waits.
    """
    kind = os.fstat(fd).st_mode
    if stat.S_ISFIFO(kind) or stat.S_ISCHR(kind):
        try:
            return os.open(f"/dev/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError:
            pass
    return fd


class Source:
    """The pipe of one worker's stderr, as far as it has been read."""

    def __init__(self, fd: int, loop: Loop, sink: Sink) -> None:
        self.tail = b""
        self._fd: int | None = fd
        self._loop = loop
        self._stream = Stream(b"", sink.screen)
        self._sink = sink
        self._watched = False
        sink.tell(self._go_on)
        self._go_on(True)

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
        self._sink.put(self._stream.finish())
        self._end()
        return left

    def _read(self) -> None:
        assert self._fd is not None
        chunk = os.read(self._fd, CHUNK_BYTES)
        self.tail = (self.tail + chunk)[-TAIL_BYTES:]
        self._sink.put(self._stream.feed(chunk) if chunk else self._stream.finish())
        if not chunk or self._sink.lost:
            self._end()

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
        assert self._fd is not None
        self._go_on(False)
        os.close(self._fd)
        self._fd = None


def _left_in(fd: int) -> int:
    """How many bytes a pipe holds."""
    from array import array
    from fcntl import ioctl
    from termios import FIONREAD

    count = array("i", [0])
    ioctl(fd, FIONREAD, count)
    return count[0]


class Stderr:
    """The stderr of all workers of a launch."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._sink: Sink | None = None
        self._sources: dict[int, Source] = {}  # by rank
        self._theirs: int | None = None  # end of a pipe that a worker is about to have

    def connect(self, rank: int) -> None:
        """Make a pipe for a worker that is about to be forked. Raises OSError."""
        if self._sink is None:
            self._sink = Sink(2, self._loop)
        ours, self._theirs = os.pipe()
        self._sources[rank] = Source(ours, self._loop, self._sink)

    def take(self) -> None:
        """In the worker: have the pipe, if there is one, for stderr."""
        if self._theirs is not None:
            os.dup2(self._theirs, 2)

    def let_go(self) -> None:
        """In us: leave the worker's end of the pipe to the worker."""
        if self._theirs is not None:
            os.close(self._theirs)
            self._theirs = None

    def tail(self, rank: int) -> str | None:
        """What a worker that has ended said last; None where it has no pipe."""
        source = self._sources.get(rank)
        if source is None:
            return None
        source.read_all()
        return source.tail.decode(errors="replace")

    def say(self, text: str) -> bool:
        """Write something of our own between the workers' lines; False where there is no pipe."""
        if self._sink is None:
            return False
        self._sink.put(self._sink.screen.leave_bar() + text.encode(errors="backslashreplace"))
        return True

    @property
    def is_flowing(self) -> bool:
        """Whether something that a worker has said is not written yet."""
        if self._sink is None:
            return False
        return self._sink.size > 0 or any(source.holds_more for source in self._sources.values())

    def give_up(self) -> int:
        """Drop what nobody reads; the result is the number of bytes."""
        dropped = sum(source.close() for source in self._sources.values())
        return dropped + (self._sink.give_up() if self._sink is not None else 0)

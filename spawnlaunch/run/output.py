"""What the workers write, on its way to our own streams: lines, whole, none lost, with their rank.

Each stream of a worker that is shown here has a pipe of its own, so that no line is torn by another
one. A worker alone writes to our streams itself: it has the terminal, and nobody to be told from.
The last lines of stderr are kept, so that the first failure's can be shown again, last.
"""

import os
import time
from typing import NamedTuple

from spawnlaunch.run.loop import Loop
from spawnlaunch.run.routes import Route
from spawnlaunch.run.sink import Sink
from spawnlaunch.run.source import Source
from spawnlaunch.run.worker import Worker

NAMES = {1: "stdout", 2: "stderr"}
# Cyan, yellow, green, magenta, blue and their brighter ones; red is for errors (ECMA-48, SGR).
COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)


class Dropped(NamedTuple):
    """What nobody read in time."""

    stream: str
    size: int  # bytes


class Output:
    """The streams of all workers of a launch."""

    def __init__(self, loop: Loop, hears_all: bool = False) -> None:
        self._hears_all = hears_all  # even of a worker alone: somebody asks for silent_s
        self._loop = loop
        self._sinks: dict[int, Sink] = {}  # by our descriptor
        self._sources: list[tuple[int, Source]] = []  # with the descriptor that each is shown on
        self._stderr: dict[int, Source] = {}  # by rank
        self._theirs: dict[int, int] = {}  # the ends of pipes that a worker is about to have

    def connect(self, worker: Worker) -> None:
        """Make the pipes of a worker that is about to be forked. Raises OSError."""
        for fd, route in ((1, worker.routes.stdout), (2, worker.routes.stderr)):
            if not self._needs_pipe(worker, fd, route):
                continue
            ours, self._theirs[fd] = os.pipe()
            sink = self._sink(fd) if route.shown else None
            prefix = _painted(worker, sink) if sink else b""
            source = Source(ours, self._loop, sink, prefix, route)
            self._sources = [each for each in self._sources if each[1].is_open]
            self._sources.append((fd, source))
            if fd == 2:
                self._stderr[worker.rank] = source

    def _needs_pipe(self, worker: Worker, fd: int, route: Route) -> bool:
        """Whether a stream must come through here.

        A lone worker on one of several nodes is to be told from those elsewhere, but not on a
        terminal, where it may want to ask for something.
        """
        if route.is_redirected:
            return False
        if self._hears_all or worker.own_session or route.file is not None or not route.shown:
            return True
        return bool(worker.prefix) and not os.isatty(fd)

    def _sink(self, fd: int) -> Sink:
        """Ours; one for both streams where both are the same file or terminal."""
        if fd not in self._sinks:
            other = self._sinks.get(3 - fd)
            same = other and os.path.sameopenfile(1, 2)
            self._sinks[fd] = other if other and same else Sink(fd, self._loop)
        return self._sinks[fd]

    def take(self) -> None:
        """In the worker: have the pipes for its streams."""
        for fd, end in self._theirs.items():
            os.dup2(end, fd)

    def let_go(self) -> None:
        """In us: leave the worker's ends of the pipes to the worker."""
        for end in self._theirs.values():
            os.close(end)
        self._theirs.clear()

    def tail(self, rank: int) -> str | None:
        """What a worker that has ended said last; None where its stderr is no pipe of ours."""
        source = self._stderr.get(rank)
        if source is None:
            return None
        source.read_all()
        return source.tail.decode(errors="replace")

    def say(self, text: str) -> bool:
        """Write something of our own between the workers' lines; False where there are none."""
        sink = self._sinks.get(2)
        if sink is None:
            return False
        sink.put(sink.screen.leave_bar() + text.encode(errors="backslashreplace"))
        return True

    def stderr_of(self, rank: int) -> Source | None:
        """The stderr of a worker, where it comes through here."""
        return self._stderr.get(rank)

    @property
    def is_held_up(self) -> bool:
        """Whether workers may be waiting for the reader of our own streams."""
        return any(sink.is_full for sink in self._sinks.values())

    @property
    def silent_s(self) -> float:
        """For how many seconds no worker has written anything that came through here."""
        return time.monotonic() - max((each.last_read for _, each in self._sources), default=0.0)

    @property
    def is_flowing(self) -> bool:
        """Whether something that a worker has said is not written yet."""
        return any(sink.size > 0 for sink in self._sinks.values()) or any(
            source.holds_more for _, source in self._sources
        )

    def give_up(self) -> list[Dropped]:
        """Drop what nobody reads."""
        sizes = dict.fromkeys(NAMES, 0)
        for fd, source in self._sources:
            sizes[fd] += source.close()
        for fd, sink in self._sinks.items():
            sizes[fd] += sink.give_up()
        return [Dropped(NAMES[fd], size) for fd, size in sizes.items() if size]


def _painted(worker: Worker, sink: Sink) -> bytes:
    """The prefix, on a terminal in the rank's colour (but see no-color.org)."""
    text = worker.prefix
    if text and sink.is_terminal and not os.environ.get("NO_COLOR"):
        text = f"\x1b[{COLOURS[worker.rank % len(COLOURS)]}m{text.rstrip()}\x1b[0m "
    return text.encode()

"""The workers' output on its way to our own streams: line by line, with their rank.

The way of a line: `starting` decides the prefix, `Output.connect` makes the pipe, `pipes.Source`
reads it, `lines.Stream` makes whole lines with the prefix before each, and `pipes.Sink` writes
them. Each stream of a worker that is shown here has a pipe of its own, so that no line is torn by
another one. Output that is lost because no reader takes it is counted and named. A worker alone
writes to our streams itself, unless the launcher needs its output (`_goes_through_pipe`). The last
lines of stderr are kept, so that the first failure's can be shown again, last.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial

from spawnlaunch.base import events, machine
from spawnlaunch.base.say import PATIENCE_S, UNWRITTEN, say, stream, worded, write
from spawnlaunch.node import proc
from spawnlaunch.outcome import failures
from spawnlaunch.output import pipes
from spawnlaunch.workers import launches

PAUSE_S = 5.0  # that a reader may make at the end, whatever the grace
NAMES = {1: "stdout", 2: "stderr"}
# Cyan, yellow, green, magenta, blue and their brighter ones; red is for errors (ECMA-48, SGR).
# None where the user has set NO_COLOR (no-color.org).
COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
# Open files of a guard: of a worker at most a pidfd, and pipes and files of both streams; and those
# of its own, for a look into /proc and a module that is imported too.
MOST_OF_A_WORKER, OF_THE_GUARD = 5, 32
TIMES, SLOT_BYTES = "spawnlaunch-said", 64  # the file of `publish`, and its parts


class Output:
    """The streams of all workers of a launch."""

    def __init__(
        self, loop: events.Loop, hears_all: bool = False, is_debugged: bool = False
    ) -> None:
        self._has_failed = False  # something could not be written, here or in a file
        self._hears_all = hears_all  # even of a worker alone: silent_s is used
        self._loop = loop
        self.sinks: dict[int, pipes.Sink] = {}  # by our descriptor
        # With the descriptor that each is shown on.
        self._sources: list[tuple[int, pipes.Source]] = []
        self._stderr: dict[int, pipes.Source] = {}  # by rank
        self.stderr_begins: dict[int, int] = {}  # by rank: the size of its file as it is started
        self._unshown = dict.fromkeys(NAMES, 0)  # by descriptor, bytes that are in files only
        # Ends of pipes for the next worker, by its descriptor.
        self.worker_ends: dict[int, int] = {}
        self._times: int | None = None  # see `publish`
        # Of pipes that are the stdin of ranks which are not debugged: nothing comes there.
        self._silent_ends: list[int] = []
        self._is_debugged = is_debugged
        self._limits: tuple[int, int] | None = None  # of a worker, where ours were raised

    def begin(self, workers: int) -> None:
        """Forget workers of an earlier attempt, and make room for descriptors of `workers` others.

        Where they need it our soft limit is raised, and not the workers'.
        """
        for fd, source in self._sources:
            self._unshown[fd] += 0 if source.is_open else source.close()
        self._sources = [each for each in self._sources if each[1].is_open]
        self.make_room(workers * MOST_OF_A_WORKER + OF_THE_GUARD)

    def make_room(self, descriptors: int) -> None:
        """Raise our soft limit of open files where it is lower than this."""
        if 0 <= machine.sysconf("SC_OPEN_MAX") < descriptors:
            self._limits = self._limits or machine.getrlimit()
            machine.setrlimit((self._limits[1], self._limits[1]))

    def connect(self, worker: launches.Worker) -> None:
        """Make the pipes of a worker that is about to be forked. Raises OSError."""
        if self._is_debugged and worker.has_session:  # the terminal is another rank's
            self.worker_ends[0], end = machine.pipe()
            self._silent_ends.append(end)
        stderr = worker.routes.stderr
        if stderr.file and stderr.is_redirected:  # an earlier launch may have written there
            with suppress(OSError):
                self.stderr_begins[worker.rank] = machine.stat(stderr.file).st_size
        for fd, route in ((1, worker.routes.stdout), (2, worker.routes.stderr)):
            if not self._goes_through_pipe(worker, fd, route):
                continue
            inlet, self.worker_ends[fd] = machine.pipe()
            sink = self._sink(fd) if route.shown else None
            prefix = worker.prefix
            if prefix and sink and sink.is_terminal and not os.environ.get("NO_COLOR"):
                colour = COLOURS[worker.rank % len(COLOURS)]
                prefix = f"\x1b[{colour}m{prefix.rstrip()}\x1b[0m "
            source = pipes.Source(
                inlet, self._loop, sink, prefix.encode(), route, self._report_loss, worker.rank
            )
            self._sources.append((fd, source))
            if fd == 2:
                self._stderr[worker.rank] = source

    def _goes_through_pipe(self, worker: launches.Worker, fd: int, route: launches.Route) -> bool:
        """Whether the launcher reads this stream of a worker."""
        # A lone worker on one of several nodes is to be told from those elsewhere, but not on a
        # terminal, where it may want to ask for something.
        needs_prefix = worker.prefix and not machine.isatty(fd)
        if route.file or not route.shown:  # the worker writes to its file by itself
            return not route.is_redirected
        return bool(self._hears_all or worker.has_session or needs_prefix)

    def _sink(self, fd: int) -> pipes.Sink:
        """The sink for our stream; one for both where both are the same file or terminal."""

        def failed(error: OSError) -> None:
            words = f"cannot write to our {NAMES[fd]}: {error.strerror}"
            self._report_loss(f"{words}; what workers write there is lost")

        def unread() -> None:
            if self.is_blocked:
                self.say(
                    [f"our {NAMES[fd]} has not been read for {pipes.UNREAD_S:g} s; workers wait"]
                )

        if fd not in self.sinks:
            other = self.sinks.get(3 - fd)
            same = other and machine.sameopenfile(1, 2)
            sink = other if other and same else pipes.Sink(fd, self._loop, failed, unread)
            self.sinks[fd] = sink
        return self.sinks[fd]

    def _report_loss(self, words: str) -> None:
        """Report that a file, or a stream of ours, cannot be written any more."""
        self._has_failed = True
        self.say([words])

    def use_ends(self, ends: Mapping[int, int]) -> None:
        """In the worker, use these ends of pipes as its streams."""
        for fd, end in ends.items():
            machine.dup2(end, fd)
        if self._limits:
            # Beside all the guard's descriptors, which exec closes, it could open no file.
            for fd in proc.open_fds():
                if fd > 2 and not machine.get_inheritable(fd):
                    machine.close(fd)
            machine.setrlimit(self._limits)

    def close_worker_ends(self) -> None:
        """In the guard, close the worker's ends of the pipes."""
        for end in self.worker_ends.values():
            machine.close(end)
        self.worker_ends.clear()

    def publish(self, pids: Mapping[int, int]) -> None:
        """Publish for `spawnlaunch top` when each of the workers with these pids, by rank, writes.

        The times are in a file without a name in memory (memfd_create(2)), in a slot for each
        worker: pid, time (monotonic clock, seconds) and rank. The pipes themselves do not tell:
        Linux 6.15 and later keep no times of them.
        """
        if not hasattr(machine, "memfd_create"):
            return
        try:
            if self._times is None:
                self._times = machine.memfd_create(TIMES)
            machine.ftruncate(self._times, 0)
        except OSError as error:
            self._times = None
            say([f"the system refuses files in memory ({error.strerror}): spawnlaunch top cannot "
                 "show when ranks said something last"])  # fmt: skip
            return
        # The source that was read last publishes last.
        sources = sorted((each for _, each in self._sources), key=lambda each: each.last_read)
        for slot, (rank, pid) in enumerate(pids.items()):
            for source in sources:
                if source.rank == rank and source.is_open:
                    source.call_on_reads(partial(_publish, self._times, slot, pid, rank))

    def read_last(self, rank: int) -> tuple[str | None, float]:
        """The last output of an ended worker, and its time by the monotonic clock.

        Both are of its stderr; None and NEVER where that is no pipe of ours.
        """
        source = self._stderr.get(rank)
        if source is None:
            return None, failures.NEVER
        source.read_all()
        silent_s = machine.running_s() - source.last_read
        return source.tail.decode(errors="replace"), machine.monotonic() - silent_s

    def shown_last(self, exited: failures.WorkerExit) -> str | None:
        """The text on our stderr since any other stream has written there; "": that is not known.

        None: the output of this worker, which wrote it by itself.
        """
        is_by_itself = exited.stderr is None and exited.rank not in self._stderr
        if is_by_itself and (machine.isatty(2) or not machine.sameopenfile(1, 2)):
            return None  # else Python may have flushed its stdout there
        sink = self.sinks.get(stream[0])
        return sink.shown_last.decode(errors="replace") if sink else ""

    def say(self, lines: Iterable[str]) -> None:
        """Write lines of our own between the workers' lines."""
        self.show(worded(lines))

    def show(self, text: str) -> None:
        """Write text of our own, whole lines, between the workers' lines."""
        if stream[0] not in NAMES:
            write(text)
        else:
            sink = self._sink(stream[0])
            sink.put(sink.screen.leave_bar() + text.encode(errors="backslashreplace"))

    @property
    def is_blocked(self) -> bool:
        """Whether workers may be waiting for the reader of our own streams."""
        return any(source.is_blocked for _, source in self._sources)

    @property
    def silent_s(self) -> float:
        """The seconds for which no worker has written anything through our pipes."""
        return machine.running_s() - max((each.last_read for _, each in self._sources), default=0.0)

    def drain(self, grace_s: float, is_end_requested: Callable[[], bool]) -> bool:
        """Write the rest of the output, now that no worker writes any more, and report lost output.

        A reader is waited for, unless it has taken nothing for the grace, or for PAUSE_S where that
        is longer. A launch that was told to end waits for the grace in all. False: some output of
        workers, or of our own, could not be written.
        """
        for fd, source in self._sources:
            self._unshown[fd] += source.close()
        self.await_readers(self.sinks.values(), grace_s, is_end_requested)
        for fd, sink in self.sinks.items():
            if self._unshown[fd] or sink.queue or sink.dropped_bytes:
                self._give_up(fd, sink)
        return not (self._has_failed or UNWRITTEN in machine.remembered)

    def await_readers(
        self, sinks: Collection[pipes.Sink], grace_s: float, is_end_requested: Callable[[], bool]
    ) -> None:
        """Wait for the readers of our streams, as long as `drain` says."""
        since = machine.running_s()
        while any(sink.queue for sink in sinks):
            pause_s = PAUSE_S
            if is_end_requested():
                pause_s = PATIENCE_S
            else:
                since = max(since, *(sink.last_write for sink in sinks))
            remaining_s = since + max(grace_s, pause_s) - machine.running_s()
            if remaining_s <= 0:
                return
            self._loop.turn(remaining_s)

    def _give_up(self, fd: int, sink: pipes.Sink) -> None:
        """Drop output that was not read in time, or could not be written, and report it."""
        unwritten_bytes = self._unshown[fd] + sink.give_up()
        if not unwritten_bytes or sink.has_no_reader:
            return
        dropped = f"the last {unwritten_bytes} bytes that workers wrote"
        if sink.error:
            say([f"cannot write to our {NAMES[fd]}: {sink.error.strerror}; lost {dropped}"])
        else:
            was_read = say([f"our {NAMES[fd]} was not read: dropped {dropped}"])
            self._has_failed |= not was_read  # then the status says it


def _publish(file: int, slot: int, pid: int, rank: int, when: float) -> None:
    when += machine.monotonic() - machine.running_s()
    with suppress(OSError):
        text = f"{pid} {when:.3f} {rank}".ljust(SLOT_BYTES)
        machine.pwrite(file, text.encode(), slot * SLOT_BYTES)

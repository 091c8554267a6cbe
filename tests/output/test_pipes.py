"""Sources and sinks by themselves: a reader that reads seldom or not at all, and what is lost."""

import json
import math
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from spawnlaunch import output
from spawnlaunch.base import events, machine
from spawnlaunch.outcome import failures
from spawnlaunch.output import pipes
from spawnlaunch.watch import journal
from spawnlaunch.workers import launches

MUCH = pipes.HIGH_BYTES + (1 << 19)  # more than may wait, with what the pipe holds and is taken


@contextmanager
def passing() -> Iterator[Callable[[events.Loop, float], None]]:
    """Lets time pass at once: the clock of those who wait for others is set forward."""
    passed: list[float] = []

    def passes(loop: events.Loop, for_s: float) -> None:
        passed.append(for_s)
        steps = math.ceil(for_s / events.LATE_S) + 2  # what passes at once is a gap
        for _ in range(steps):
            machine.exclude(-for_s / steps)
            loop.turn(0)

    try:
        yield passes
    finally:
        machine.exclude(sum(passed))


class Sides:
    """A sink whose reader is this test, and what it has told."""

    def __init__(self) -> None:
        self.loop = events.Loop()
        self.theirs, end = os.pipe()
        os.set_blocking(self.theirs, False)
        self.unread = 0
        self.lost: list[str] = []
        self.failures: list[OSError] = []
        self.sink = pipes.Sink(end, self.loop, self.failures.append, self._unread)
        os.close(end)

    def _unread(self) -> None:
        self.unread += 1

    def source(self, file: Path | None = None) -> tuple[pipes.Source, int]:
        """One that is shown there, and the end that its worker has."""
        ours, end = os.pipe()
        os.set_blocking(end, False)
        route = launches.Route(str(file) if file else None, True)
        source = pipes.Source(ours, self.loop, self.sink, b"", route, self.lost.append, 0)
        return source, end

    def takes(self, size: int) -> int:
        """Read so much, if it is there."""
        taken = 0
        while taken < size:
            try:
                taken += len(os.read(self.theirs, min(1 << 16, size - taken)))
            except BlockingIOError:
                self.loop.turn(0)
                if not self.sink.queue:
                    break
        return taken


@pytest.fixture
def sides() -> Iterator[Sides]:
    made = Sides()
    yield made
    os.close(made.theirs)


def test_a_reader_that_takes_something_now_and_then_is_told_of_when_it_stops(sides: Sides):
    sides.sink.put(b"x" * MUCH)
    with passing() as passes:
        for _ in range(4):
            passes(sides.loop, pipes.UNREAD_S * 0.6)
            assert sides.takes(1 << 16) == 1 << 16
            sides.loop.turn(0)
        assert sides.unread == 0
        for _ in range(3):
            passes(sides.loop, pipes.UNREAD_S * 0.6)
        assert sides.unread == 1


def test_a_file_gets_all_when_the_reader_has_stopped_and_then_what_was_missed_is_named(
    sides: Sides, tmp_path: Path
):
    file = tmp_path / "log"
    source, end = sides.source(file)
    sides.sink.put(b"x" * MUCH)
    with passing() as passes:
        for _ in range(4):  # it takes something, and so is waited for
            passes(sides.loop, pipes.STOPPED_S * 0.6)
            sides.takes(1 << 16)
            sides.loop.turn(0)
        os.write(end, b"not shown\n")
        passes(sides.loop, 0)
        assert file.read_bytes() == b""
        for _ in range(3):
            passes(sides.loop, pipes.STOPPED_S * 0.6)
        assert file.read_bytes() == b"not shown\n"
        sides.takes(MUCH)
        os.write(end, b"shown\n")
        passes(sides.loop, 0)
    shown = os.read(sides.theirs, 1 << 16)
    assert shown.endswith(b"shown\n")
    assert b"not shown\n" not in shown
    assert b" 10 bytes are not shown" in shown
    os.close(end)
    assert source.close() == 0


def test_whoever_asks_is_told_when_a_worker_says_something(sides: Sides):
    source, end = sides.source()
    heard: list[float] = []
    source.call_on_reads(heard.append)
    for words in (b"one\n", b"two\n"):
        os.write(end, words)
        sides.loop.turn(0)
    assert len(heard) == 3  # once as it asked
    assert heard[-1] == source.last_read
    os.close(end)
    source.close()


def test_what_a_worker_reads_of_its_own_output_is_not_waited_for(sides: Sides):
    source, end = sides.source()
    its_own, waking = os.open(f"/proc/self/fd/{end}", os.O_RDONLY), os.eventfd(1)
    sides.loop.watch(waking, lambda: os.read(its_own, 1 << 16))
    os.write(end, b"said")
    sides.loop.turn(0)
    assert source.received == 0
    sides.loop.forget(waking)
    for fd in (its_own, waking, end):
        os.close(fd)
    source.close()


def test_what_an_output_that_fails_has_cost_is_counted_to_the_end():
    failures: list[OSError] = []
    with open("/dev/full", "wb", buffering=0) as full:
        sink = pipes.Sink(full.fileno(), events.Loop(), failures.append, lambda: None)
        for size in (10, 5, 1):
            sink.put(b"x" * size)
        assert sink.give_up() == 16
    assert len(failures) == 1


def test_a_recorder_that_reads_late_gets_events_whole_and_those_that_it_lacks_are_counted(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(output, "PATIENCE_S", 0.0)
    loop, (reader, end) = events.Loop(), os.pipe()
    kept = journal.Journal(end, "node0", loop, output.Output(loop))
    for n in range(3000):
        kept.noted("said", n=n, words="x" * 100)
    read = b""
    while read.count(b"\n") < 2000:
        read += os.read(reader, 1 << 16)
        loop.turn(0)
    kept.ended(failures.LaunchResult(0, None), lambda: True)
    os.set_blocking(reader, False)
    with suppress(BlockingIOError):
        while True:
            read += os.read(reader, 1 << 16)
    got = [json.loads(line)["n"] for line in read.split(b"\n")[:-1]]
    assert got == [*range(len(got))]
    assert f"it lacks the last {3001 - len(got)} events" in capfd.readouterr().err
    os.close(reader)
    os.close(end)


def fill(end: int) -> None:
    """Write until nothing more can be written, and leave it as one that waits."""
    os.set_blocking(end, False)
    with suppress(BlockingIOError):
        while True:
            os.write(end, b"x" * 4096)
    os.set_blocking(end, True)


def test_a_write_now_does_not_wait_where_there_is_no_room():
    for reader, end in (os.pipe(), os.openpty()):
        fill(end)
        with suppress(BlockingIOError):
            while True:  # a terminal has room once more, when the kernel has moved what is in it
                assert machine.write_now(end, b"y") == 1
        os.close(reader)
        os.close(end)


def test_what_is_written_now_is_whole_however_many_others_write():
    """They fill what room there is; the reader is slow."""
    reader, end = os.pipe()
    others = [machine.fork(partial(_write_on, reader, end)) for _ in range(2)]
    read, sent = b"", 0
    while sent < 20:
        record = bytes([sent]) * 3000
        with suppress(BlockingIOError):
            assert machine.write_now(end, record) == len(record)
            sent += 1
        read += os.read(reader, 1000)
    for pid in others:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    os.close(end)
    while more := os.read(reader, 1 << 16):
        read += more
    os.close(reader)
    pieces = re.findall(rb"(.)(\1*)", read, re.DOTALL)
    assert [one[0] for one, _ in pieces if one != b"\xff"] == [*range(20)]
    assert all((len(more) + 1) % 3000 == 0 for one, more in pieces if one != b"\xff")


def _write_on(reader: int, end: int) -> None:
    os.close(reader)
    while True:
        os.write(end, b"\xff" * 3000)

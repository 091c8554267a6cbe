"""Sources and sinks by themselves: a reader that reads seldom or not at all, and what is lost."""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spawnlaunch import machine
from spawnlaunch.run import events, launches, pipes

MUCH = pipes.HIGH_BYTES + (1 << 19)  # more than may wait, with what the pipe holds and is taken


@contextmanager
def passing() -> Iterator[Callable[[events.Loop, float], None]]:
    """Lets time pass at once: the clock of those who wait for others is set forward."""
    passed: list[float] = []

    def passes(loop: events.Loop, for_s: float) -> None:
        passed.append(for_s)
        steps = math.ceil(for_s / events.LATE_S) + 2  # what passes at once is a gap
        for _ in range(steps):
            machine.lose(-for_s / steps)
            loop.turn(0)

    try:
        yield passes
    finally:
        machine.lose(sum(passed))


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
    source.tell(heard.append)
    for words in (b"one\n", b"two\n"):
        os.write(end, words)
        sides.loop.turn(0)
    assert len(heard) == 3  # once as it asked
    assert heard[-1] == source.last_read
    os.close(end)
    source.close()


def test_what_an_output_that_fails_has_cost_is_counted_to_the_end():
    failures: list[OSError] = []
    with open("/dev/full", "wb", buffering=0) as full:
        sink = pipes.Sink(full.fileno(), events.Loop(), failures.append, lambda: None)
        for size in (10, 5, 1):
            sink.put(b"x" * size)
        assert sink.give_up() == 16
    assert len(failures) == 1

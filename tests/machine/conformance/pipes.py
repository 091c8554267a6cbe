"""Pipes, and any calls on several of them by seed."""

import os
import select
import signal
from random import Random
from typing import Any

from tests.machine.conformance.programs import child_ended, noted, program, programs, started, tried


@program
def nobody_reads_a_pipe_and_sigpipe_kills(m: Any) -> None:
    def child() -> None:
        m.signal(signal.SIGPIPE, signal.SIG_DFL)
        r, w = m.pipe()
        m.close(r)
        m.write(w, b"x")

    child_ended(m, started(m, child, ready=False))


@program
def a_blocked_writer_goes_on_when_somebody_reads(m: Any) -> None:
    r, w = m.pipe()

    def child() -> None:
        m.close(r)
        noted(m, m.write(w, b"x" * 200000))

    pid = started(m, child, ready=False)
    m.close(w)
    got = 0
    while data := m.read(r, 1 << 16):
        got += len(data)
    child_ended(m, pid)
    noted(m, got)


@program
def a_pipe_is_opened_once_more(m: Any) -> None:
    r, w = m.pipe()
    other = m.open(f"/dev/fd/{w}", os.O_WRONLY | os.O_NONBLOCK)
    noted(m, m.write(other, b"x" * 70000), tried(m, m.write, other, b"x"))
    m.close(w)
    m.set_blocking(r, False)
    noted(m, len(m.read(r, 100000)), tried(m, m.read, r, 1))
    m.close(other)
    noted(m, m.read(r, 1))


@program
def a_write_now_does_not_wait(m: Any) -> None:
    r, w = m.pipe()
    m.set_blocking(w, False)
    noted(m, m.write(w, b"x" * 61441))  # the last page has room for three, of as many that fit
    m.set_blocking(w, True)
    noted(m, m.write_now(w, b"y" * 3), tried(m, m.write_now, w, b"z" * 4096))
    m.close(r)
    noted(m, tried(m, m.write_now, w, b"x"))


class _Pipes:
    """Any calls on a few pipes, none of which waits."""

    def __init__(self, m: Any, seed: int) -> None:
        self.m, self.random = m, Random(seed)
        self.least = m.notes + 1
        self.names: dict[int, str] = {}  # of descriptors: which end it is
        self.poller, self.epoll = m.poll(), m.epoll()
        self.polled: set[int] = set()

    def noted(self, *what: object) -> None:
        noted(self.m, what)

    def step(self) -> None:
        calls = [self.make, *[self.write] * 3, *[self.read] * 3, self.close, self.dup, self.watch]
        call = self.random.choice([*calls, self.look, self.size])
        fd = self.random.choice(sorted(self.names)) if self.names else -1
        if fd < 0:
            self.make(fd)
        else:
            call(fd)

    def make(self, _: int) -> None:
        for name, fd in zip("rw", self.m.pipe(), strict=True):
            self.m.set_blocking(fd, False)
            self.names[fd] = name
            self.noted(name, fd - self.least)

    def _bytes(self) -> int:
        return self.random.choice((0, 1, 10, 4095, 4096, 4097, 5000, 60000, 65536, 100000))

    def write(self, fd: int) -> None:
        size = self._bytes()
        if self.names[fd] == "w":
            self.noted("write", fd - self.least, size, tried(self.m, self.m.write, fd, b"x" * size))

    def read(self, fd: int) -> None:
        size = self._bytes()
        if self.names[fd] == "r":
            found = tried(self.m, self.m.read, fd, size)
            self.noted("read", fd - self.least, found if isinstance(found, str) else len(found))

    def close(self, fd: int) -> None:
        if fd in self.polled:
            self.epoll.unregister(fd)
            self.poller.unregister(fd)
            self.polled.discard(fd)
        self.m.close(fd)
        del self.names[fd]

    def dup(self, fd: int) -> None:
        other = self.m.dup(fd)
        self.names[other] = self.names[fd]
        self.noted("dup", other - self.least)

    def watch(self, fd: int) -> None:
        events = self.random.choice((select.POLLIN, select.POLLOUT, select.POLLIN | select.POLLOUT))
        if fd not in self.polled:
            self.noted("epoll", tried(self.m, self.epoll.register, fd, events))
            self.poller.register(fd, events)
            self.polled.add(fd)

    def look(self, _: int) -> None:
        for what, ready in (("polled", self.poller.poll(0)), ("ready", self.epoll.poll(0))):
            self.noted(what, [(fd - self.least, seen) for fd, seen in ready])

    def size(self, fd: int) -> None:
        if self.names[fd] == "r":
            self.noted("holds", self.m.size_of(fd))


@programs((seed,) for seed in range(60))
def pipes_of_seed(m: Any, seed: int) -> None:
    m.signal(signal.SIGPIPE, signal.SIG_IGN)
    pipes = _Pipes(m, seed)
    for _ in range(60):
        pipes.step()

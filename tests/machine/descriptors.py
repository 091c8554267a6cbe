"""What a descriptor may lead to: pipes, files, pidfds, epoll, terminals.

A `Description` is an open file description of open(2): fork and dup share it, and it is closed when
the last descriptor is.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tests.machine.errors import refused
from tests.machine.files import Inode

if TYPE_CHECKING:
    from tests.machine.process import Process

PAGE, PAGES = 4096, 16  # of a pipe: 64 KiB (pipe(7))


class Description:
    """One that can be neither read nor written; the others say what they can."""

    kind = stat.S_IFCHR

    def __init__(self) -> None:
        self.count = 0
        self.path = ""  # of a file or directory, as it was opened
        self.blocks = True
        self.waiters: list[Process] = []
        self.epolls: list[Epoll] = []

    def held(self) -> Description:
        """By one more descriptor."""
        self.count += 1
        return self

    def release(self) -> None:
        self.count -= 1
        if self.count <= 0:
            self.closed()

    def closed(self) -> None:
        """The last descriptor of it is gone."""
        for epoll in list(self.epolls):
            epoll.drop(self)

    def touch(self) -> None:
        """Something has changed for those that wait for it."""
        for process in list(self.waiters):
            process.wake()
        for epoll in self.epolls:
            epoll.look_at(self)

    def events(self) -> int:
        """What poll(2) tells."""
        return 0

    def read(self, process: Process, most: int) -> bytes:
        raise refused(errno.EINVAL)

    def write(self, process: Process, data: bytes) -> int:
        raise refused(errno.EINVAL)

    def reopened(self, flags: int) -> Description:
        """By /dev/fd/N: a description of its own, of the same thing (proc(5), /proc/PID/fd)."""
        raise refused(errno.ENXIO)


class Null(Description):
    """/dev/null"""

    def events(self) -> int:
        return select.POLLIN | select.POLLOUT

    def read(self, process: Process, most: int) -> bytes:
        return b""

    def write(self, process: Process, data: bytes) -> int:
        return len(data)


class Pipe:
    """The pages between two ends. A write is added to the last page if its end fits there."""

    def __init__(self) -> None:
        self.pages: list[bytearray] = []
        self.is_foreign = False  # another user's, so that it cannot be opened once more
        self.readers: list[PipeEnd] = []
        self.writers: list[PipeEnd] = []
        self.reader, self.writer = PipeReader(self), PipeWriter(self)

    @property
    def has_reader(self) -> bool:
        return bool(self.readers)

    @property
    def has_writer(self) -> bool:
        return bool(self.writers)

    def touch(self, ends: Iterable[Description]) -> None:
        for end in list(ends):
            end.touch()

    @property
    def size(self) -> int:
        return sum(map(len, self.pages))

    @property
    def is_full(self) -> bool:
        return len(self.pages) >= PAGES

    def add(self, data: bytes) -> int:
        """Write as much as there is room for (pipe_write in the kernel's fs/pipe.c)."""
        written = 0
        end = len(data) % PAGE
        if self.pages and end and len(self.pages[-1]) + end <= PAGE:
            self.pages[-1] += data[:end]
            written = end
        while written < len(data) and not self.is_full:
            self.pages.append(bytearray(data[written : written + PAGE]))
            written += len(self.pages[-1])
        return written

    def take(self, most: int) -> bytes:
        taken = b""
        while self.pages and len(taken) < most:
            page = self.pages[0]
            part = bytes(page[: most - len(taken)])
            taken += part
            del page[: len(part)]
            if not page:
                self.pages.pop(0)
        return taken


class PipeEnd(Description):
    """One of a pipe's `same` ends; when the last of them closes, the others see it."""

    kind = stat.S_IFIFO

    def __init__(self, pipe: Pipe, same: list[PipeEnd], others: list[PipeEnd]) -> None:
        super().__init__()
        self.pipe, self._same, self._others = pipe, same, others
        same.append(self)

    def closed(self) -> None:
        super().closed()
        self._same.remove(self)
        if not self._same:
            self.pipe.touch(self._others)

    def reopened(self, flags: int) -> Description:
        if self.pipe.is_foreign:
            raise refused(errno.EACCES)
        other = (PipeWriter if flags & os.O_WRONLY else PipeReader)(self.pipe)
        other.blocks = not flags & os.O_NONBLOCK
        return other


class PipeReader(PipeEnd):
    def __init__(self, pipe: Pipe) -> None:
        super().__init__(pipe, pipe.readers, pipe.writers)

    def events(self) -> int:
        readable = select.POLLIN if self.pipe.pages else 0
        return readable | (0 if self.pipe.has_writer else select.POLLHUP)

    def read(self, process: Process, most: int) -> bytes:
        pipe = self.pipe
        if most and not pipe.pages and pipe.has_writer:
            if not self.blocks:
                raise refused(errno.EAGAIN)
            kernel = process.kernel
            kernel.wait(process, lambda: pipe.pages or not pipe.has_writer, on=[self])
        was_full = pipe.is_full
        data = pipe.take(most)
        if was_full and not pipe.is_full:
            pipe.touch(pipe.writers)
        return data


class PipeWriter(PipeEnd):
    def __init__(self, pipe: Pipe) -> None:
        super().__init__(pipe, pipe.writers, pipe.readers)

    def events(self) -> int:
        writable = 0 if self.pipe.is_full else select.POLLOUT
        return writable | (0 if self.pipe.has_reader else select.POLLERR)

    def write(self, process: Process, data: bytes) -> int:
        pipe, written = self.pipe, 0
        while data:
            if not pipe.has_reader:
                if written:
                    return written
                process.broken_pipe()
                raise refused(errno.EPIPE)
            written += pipe.add(data[written:])
            if written:
                pipe.touch(pipe.readers)
            if written == len(data):
                return written
            if not self.blocks:
                if written:
                    return written
                raise refused(errno.EAGAIN)
            kernel = process.kernel
            kernel.wait(process, lambda: not pipe.is_full or not pipe.has_reader, on=[self])
        return 0


class Regular(Description):
    """An open file, whose disk may be full."""

    kind = stat.S_IFREG

    def __init__(self, inode: Inode, appends: bool = False, room: list[int] | None = None) -> None:
        super().__init__()
        self.inode, self.offset, self.appends = inode, 0, appends
        self.room = room  # bytes that the disk still has, shared by its files; None: no limit

    @classmethod
    def of(cls, content: bytes) -> Regular:
        """One that is made up for who reads it."""
        inode = Inode(stat.S_IFREG, 0o444)
        inode.content += content
        return cls(inode)

    def events(self) -> int:
        return select.POLLIN | select.POLLOUT

    def read(self, process: Process, most: int) -> bytes:
        data = bytes(self.inode.content[self.offset : self.offset + most])
        self.offset += len(data)
        return data

    def write(self, process: Process, data: bytes) -> int:
        if self.room is not None:
            data = data[: self.room[0]]
            if not data:
                raise refused(errno.ENOSPC)
            self.room[0] -= len(data)
        content = self.inode.content
        if self.appends:
            self.offset = len(content)
        content[self.offset : self.offset + len(data)] = data
        self.offset += len(data)
        self.inode.changed = process.kernel.now + process.kernel.wall
        return len(data)

    def reopened(self, flags: int) -> Description:
        return Regular(self.inode, self.appends, self.room)


class Pidfd(Description):
    """pidfd_open(2): readable once its process has ended."""

    kind = 0

    def __init__(self, process: Process) -> None:
        super().__init__()
        self.process = process
        process.node.pidfds.setdefault(process.pid, []).append(self)

    def events(self) -> int:
        return select.POLLIN if self.process.state in ("zombie", "gone") else 0

    def closed(self) -> None:
        super().closed()
        listed = self.process.node.pidfds.get(self.process.pid, [])
        if self in listed:
            listed.remove(self)


class SignalFd(Description):
    """signalfd(2), of the process that has made it; it does not wait."""

    kind = 0

    def __init__(self, process: Process, signums: frozenset[int]) -> None:
        super().__init__()
        self.process, self.signums = process, signums
        process.signalfds.append(self)

    def events(self) -> int:
        return select.POLLIN if self.process.pending.keys() & self.signums else 0

    def read(self, process: Process, most: int) -> bytes:
        found = sorted(process.pending.keys() & self.signums)
        if not found:
            raise refused(errno.EAGAIN)
        info = process.pending.pop(found[0])
        return struct.pack("=Iii", info.si_signo, 0, info.si_code).ljust(128, b"\0")


class Epoll(Description):
    """epoll(7): what is ready comes in the order in which it became so."""

    kind = 0

    def __init__(self) -> None:
        super().__init__()
        self.registered: dict[tuple[int, Description], int] = {}
        self.queue: list[tuple[int, Description]] = []

    def add(self, fd: int, what: Description, events: int) -> None:
        if (fd, what) in self.registered:
            raise refused(errno.EEXIST)
        if what.kind == stat.S_IFREG:
            raise refused(errno.EPERM)
        self.registered[fd, what] = events
        if self not in what.epolls:
            what.epolls.append(self)
        self.look_at(what)

    def remove(self, fd: int, what: Description) -> None:
        if (fd, what) not in self.registered:
            raise refused(errno.ENOENT)
        del self.registered[fd, what]
        self.queue = [each for each in self.queue if each != (fd, what)]
        if not any(each is what for _, each in self.registered):
            what.epolls.remove(self)

    def drop(self, what: Description) -> None:
        """Nobody has it any more."""
        for each in [each for each in self.registered if each[1] is what]:
            self.remove(*each)

    def look_at(self, what: Description) -> None:
        for each, events in reversed(self.registered.items()):  # the last that waits is told first
            if each[1] is what and each not in self.queue and self._seen(what, events):
                self.queue.append(each)
                self.touch()

    @staticmethod
    def _seen(what: Description, events: int) -> int:
        return what.events() & (events | select.POLLERR | select.POLLHUP)

    def take(self, most: int) -> list[tuple[int, int]]:
        """What is ready; as long as it stays so it is told again, behind the others."""
        found, again = [], []
        while self.queue and len(found) < most:
            each = self.queue.pop(0)
            seen = self._seen(each[1], self.registered[each])
            if seen:
                found.append((each[0], seen))
                again.append(each)
        self.queue += again
        return found

    def events(self) -> int:
        return (
            select.POLLIN
            if any(self._seen(each[1], self.registered[each]) for each in self.queue)
            else 0
        )

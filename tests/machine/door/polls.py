"""What waits for several descriptors."""

import errno
import select
from typing import Any

from tests.machine.descriptors import Epoll
from tests.machine.door.calls import Calls
from tests.machine.errors import refused


class Poll:
    """select.poll"""

    def __init__(self, door: Calls) -> None:
        self._door = door
        self._events: dict[int, int] = {}

    def register(self, fd: int, events: int = select.POLLIN | select.POLLOUT) -> None:
        self._events[fd] = events

    def unregister(self, fd: int) -> None:
        del self._events[fd]

    def poll(self, timeout_ms: float | None = None) -> list[tuple[int, int]]:
        process = self._door.begin("poll")
        timeout_s = None if timeout_ms is None or timeout_ms < 0 else timeout_ms / 1000

        def ready() -> list[tuple[int, int]]:
            found = []
            for fd, events in self._events.items():
                if fd not in process.fds:
                    found.append((fd, select.POLLNVAL))
                    continue
                seen = process.fds[fd][0].events() & (events | select.POLLERR | select.POLLHUP)
                if seen:
                    found.append((fd, seen))
            return found

        on = [process.fds[fd][0] for fd in self._events if fd in process.fds]
        return self._door.wait(process, ready, timeout_s, on) or []


class EpollObject:
    """select.epoll"""

    def __init__(self, door: Calls) -> None:
        self._door = door
        self._epoll = Epoll()
        self._fd = door.begin("epoll_create").put(self._epoll.held())

    def fileno(self) -> int:
        return self._fd

    def register(self, fd: Any, events: int = select.EPOLLIN) -> None:
        process = self._door.begin("epoll_ctl")
        if fd is self:
            raise refused(errno.EINVAL)
        self._epoll.add(fd, process.at(fd), events)

    def unregister(self, fd: int) -> None:
        process = self._door.begin("epoll_ctl_del")  # which fails for want of nothing
        self._epoll.remove(fd, process.at(fd))

    def poll(self, timeout_s: float | None = None, most: int = -1) -> list[tuple[int, int]]:
        process = self._door.begin("epoll_wait")
        until = None if timeout_s is None or timeout_s < 0 else timeout_s
        most = 1023 if most < 0 else most
        found = self._door.wait(process, lambda: self._epoll.take(most), until, [self._epoll])
        return found or []

    def close(self) -> None:
        self._door.close(self._fd)

"""Sockets as processes have them, and datagrams, which only hold their names."""

from __future__ import annotations

import _socket
import errno
import stat
from typing import TYPE_CHECKING, Any

from tests.machine.descriptors import Description
from tests.machine.errors import refused
from tests.machine.network import Tcp

if TYPE_CHECKING:
    from tests.machine.door import Door
    from tests.machine.node import Node
    from tests.machine.process import Process


class Name(Description):
    """A socket that only holds a name or a port; another of the same name is refused."""

    kind = stat.S_IFSOCK

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node, self.name = node, None

    def closed(self) -> None:
        super().closed()
        if self.name is not None:
            self.node.sockets.discard(self.name)


class Socket:
    """What `_socket.socket` is for those who use it."""

    def __init__(self, door: Door, what: Description, process: Process) -> None:
        self._door, self._what = door, what
        self._fd = process.put(what.held())

    def _begin(self, call: str) -> Process:
        process = self._door.begin(call)
        if self._fd < 0:
            raise refused(errno.EBADF)
        return process

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._door.close(fd)

    def setblocking(self, blocks: bool) -> None:
        self._begin("fcntl")

    def setsockopt(self, level: int, name: int, value: Any) -> None:
        self._begin("setsockopt")
        is_timeout = (level, name) == (_socket.IPPROTO_TCP, _socket.TCP_USER_TIMEOUT)
        if isinstance(self._what, Tcp) and is_timeout:
            self._what.user_timeout_s = value / 1000

    def getsockopt(self, level: int, name: int) -> int:
        self._begin("getsockopt")
        assert isinstance(self._what, Tcp)
        number, self._what.failure = self._what.failure, 0
        return number

    def bind(self, address: Any) -> None:
        self._begin("bind")
        what, node = self._what, self._what.node
        if isinstance(what, Name):
            if address in node.sockets:
                raise refused(errno.EADDRINUSE)
            what.name = address
            node.sockets.add(address)
            return
        host, port = address[:2]
        if host not in ("", "0.0.0.0", "127.0.0.1", node.address):
            raise refused(errno.EADDRNOTAVAIL)
        if (node, port) in node.network.listeners:
            raise refused(errno.EADDRINUSE)
        what.port, what.host = port or node.network.free_port(), host or "0.0.0.0"

    def listen(self, backlog: int = 0) -> None:
        self._begin("listen")
        if isinstance(self._what, Name):
            return
        key = (self._what.node, self._what.port)
        if key in self._what.node.network.listeners:
            raise refused(errno.EADDRINUSE)
        self._what.backlog = []
        self._what.node.network.listeners[key] = self._what

    def connect_ex(self, address: Any) -> int:
        self._begin("connect")
        return self._what.connect(self._what.node.network, (address[0], address[1]))

    def getsockname(self) -> tuple[str, int]:
        self._begin("getsockname")
        what = self._what
        return getattr(what, "host", what.node.address), what.port

    def getpeername(self) -> tuple[str, int]:
        self._begin("getpeername")
        if self._what.remote is None or not self._what.is_connected:
            raise refused(errno.ENOTCONN)
        return self._what.remote

    def send(self, data: Any, flags: int = 0) -> int:
        return self._what.send(self._begin("sendto"), bytes(data))

    def recv(self, most: int, flags: int = 0) -> bytes:
        self._begin("recvfrom")
        return self._what.receive(most)

    def shutdown(self, how: int) -> None:
        self._begin("shutdown")
        self._what.end()

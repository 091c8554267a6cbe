"""A connection in an event loop: a Wire reads its bytes, and messages wait until they are sent.

The kernel notices a peer that is dead or unreachable, even while this process is busy: by keepalive
where no data are under way, by TCP_USER_TIMEOUT where some are (tcp(7)).
"""

from __future__ import annotations

import _socket as socket
import select
from contextlib import suppress

from spawnlaunch.multinode.messages import Start
from spawnlaunch.multinode.wire import Foreign, Wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from spawnlaunch.multinode.messages import Message

    class EventLoop(Protocol):
        """The methods of the launcher's event loop that connections use."""

        def watch(self, fd: int, call: Callable[[], None], events: int = ...) -> None: ...
        def forget(self, fd: int) -> None: ...
        def alarm(
            self,
            call: Callable[[], None],
            after_s: float | None,
            always: bool = ...,
        ) -> None: ...


MOST_READ = 65536  # bytes at once; a hub reads no more of one connection in a turn of its loop
MOST_WAITING = 2**23  # bytes that a peer may leave unread
LINGER_S = 5.0  # for the peer to read the last messages


class Ended(Exception):
    """A connection has ended; `certain`: the other end has closed it."""

    def __init__(self, why: str, certain: bool = False, is_final: bool = False) -> None:
        super().__init__(why)
        self.certain = certain
        self.is_final = is_final


class Connection:
    """A connection; it calls `on_messages` with those of each turn, and `on_end` once."""

    def __init__(
        self,
        loop: EventLoop,
        sock: socket.socket,
        wire: Wire,
        on_messages: Callable[[list[Any]], None],
        on_end: Callable[[Ended], None],
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        """Set up a connection; it calls `on_ready` once both ends have proved themselves."""
        self._loop, self._sock, self.wire = loop, sock, wire
        self._on_messages, self._on_end, self._on_ready = on_messages, on_end, on_ready
        self.waiting = bytearray()
        self._events = 0
        self._is_closing = False
        self._watch(select.POLLIN)

    @property
    def is_open(self) -> bool:
        return self._sock.fileno() >= 0

    def begin(self) -> None:
        """Send the first line of the handshake, when the connection exists."""
        self._write(self.wire.take())

    def send(self, message: Message) -> None:
        """Send a message, now or as soon as the peer reads."""
        if self._sock.fileno() >= 0 and not self._is_closing:
            self._write(self.wire.encode(message))

    def refuse(self, why: str) -> None:
        """Send a peer that has not proved itself the reason for its refusal, in plain words."""
        words = "".join(c if " " <= c <= "~" else "?" for c in why)
        self._write(f"no {words[:500]}\n".encode())

    def close(self) -> None:
        """End the connection once all is sent, without a call of `on_end`."""
        if self._sock.fileno() < 0 or self._is_closing:
            return
        self._is_closing = True
        self._on_messages, self._on_end = _nothing, _nothing
        self._loop.alarm(self.drop, LINGER_S)
        self._flush()

    def drop(self) -> None:
        """End the connection at once, without a call of `on_end`."""
        self._on_messages, self._on_end = _nothing, _nothing
        if self._sock.fileno() >= 0:
            self._loop.alarm(self.drop, None)
            self._watch(0)
            self._sock.close()

    def _watch(self, events: int) -> None:
        if events != self._events:
            if self._events:
                self._loop.forget(self._sock.fileno())
            if events:
                self._loop.watch(self._sock.fileno(), self.turn, events)
            self._events = events

    def _write(self, data: bytes) -> None:
        self.waiting += data
        self._flush()

    def _flush(self) -> None:
        if self._sock.fileno() < 0:
            return
        try:
            while self.waiting:
                del self.waiting[: self._sock.send(self.waiting)]
        except BlockingIOError:
            pass
        except OSError:  # reading gives the error, after the peer's last messages
            self.waiting.clear()
        if len(self.waiting) > MOST_WAITING:
            self.waiting.clear()
            self._end(Ended("it does not read"))
            return
        self._watch(select.POLLIN | (select.POLLOUT if self.waiting else 0))
        if self._is_closing and not self.waiting:
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)

    def turn(self) -> None:
        """Read the bytes that have come, and send those that wait."""
        if self.waiting:
            self._flush()
        data, end = self._read()
        if self.is_open and not self._is_closing:
            self._handle(data, end)
        elif end:
            self.drop()

    def _handle(self, data: bytes, end: Ended | None) -> None:
        """Handle the peer's bytes, and the end of the connection if it came with them.

        A Start together with the end is ignored: its hub has ended.
        """
        messages: list[Any] = []
        was_ready = self.wire.is_ready
        try:
            messages = self.wire.feed(data)
        except Foreign as error:
            end = Ended(str(error), is_final=error.is_final)
        if self.wire.out:
            self._write(self.wire.take())
        if self.wire.is_ready and not was_ready:
            self._on_ready()
        if end:
            messages = [m for m in messages if not isinstance(m, Start)]
        if messages:
            self._on_messages(messages)
        if end:
            self._end(end)

    def _read(self) -> tuple[bytes, Ended | None]:
        """Read all bytes that have come; return them, with the end of the connection or None."""
        data = bytearray()
        most = MOST_READ if self.wire.is_hub else 16 * MOST_READ
        while len(data) < most:
            try:
                read = self._sock.recv(MOST_READ)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                return bytes(data), Ended(error.strerror or str(error))
            if not read:
                return bytes(data), Ended("closed", certain=True)
            data += read
        return bytes(data), None

    def _end(self, end: Ended) -> None:
        on_end, self._on_end, self._on_messages = self._on_end, _nothing, _nothing
        on_end(end)
        if not end.certain and not self.wire.is_ready:  # refused: the peer is to read the reason
            self.close()
        else:
            self.drop()


def _nothing(_: object) -> None:
    pass


def tune(sock: socket.socket, lost_after_s: float) -> None:
    """Have the kernel notice within this time that the other machine is dead or out of reach."""
    sock.setblocking(False)
    probe_s = max(1, int(lost_after_s / 10))
    options: list[tuple[int, str, int]] = [
        (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", probe_s),
        (socket.IPPROTO_TCP, "TCP_KEEPALIVE", probe_s),  # macOS
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", probe_s),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", 10),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", int(lost_after_s * 1000)),
    ]
    for level, name, value in options:
        if hasattr(socket, name):
            with suppress(OSError):
                sock.setsockopt(level, getattr(socket, name), value)

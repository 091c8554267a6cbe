"""A connection in an event loop: a Wire reads its bytes, and messages wait until they are sent.

The kernel notices a peer that is dead or unreachable, even while this process is busy: by keepalive
where no data are under way, by TCP_USER_TIMEOUT where some are (tcp(7)).
"""

from __future__ import annotations

import _socket as socket
import select
from contextlib import suppress

from spawnlaunch.base import machine
from spawnlaunch.multinode.wire import Foreign, Wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from spawnlaunch.base.events import Loop
    from spawnlaunch.multinode.messages import Order, Report

MOST_READ = 65536  # bytes at once; a hub reads no more of one connection in a turn of its loop
MOST_WAITING = 2**23  # bytes that a peer may leave unread
LINGER_S = 5.0  # for the peer to read the last messages


class Ended(Exception):
    """A connection has ended; `is_certain`: the other end has closed it."""

    def __init__(self, why: str, is_certain: bool = False, is_final: bool = False) -> None:
        super().__init__(why)
        self.is_certain, self.is_final = is_certain, is_final


class Stream:
    """A connection; it calls `heard` with the messages of each turn, and `ended` once."""

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        wire: Wire,
        heard: Callable[[list[Any]], None],
        ended: Callable[[Ended], None],
        ready: Callable[[], None] = lambda: None,
        address: str = "",
    ) -> None:
        """Set up a connection; it calls `ready` once both ends have proved themselves."""
        self.address, self.since = address, machine.running_s()  # or since it was closed here
        self.is_member = False  # a Report has come from there
        self._loop, self._sock, self.wire = loop, sock, wire
        self._heard, self._ended, self._ready = heard, ended, ready
        self._waiting = bytearray()
        self._events = 0
        self._is_closing = False
        self._watch(select.POLLIN)
        if self.wire.out:  # the first line of the handshake is a node's
            self._send(self.wire.take())

    @property
    def is_open(self) -> bool:
        return self._sock.fileno() >= 0

    def say(self, message: Report | Order | None) -> None:
        """Send a message, now or as soon as the peer reads; None: a beat."""
        if self.is_open and not self._is_closing:
            self._send(self.wire.encode(message))

    def refuse(self, why: str) -> None:
        """Send a peer that has not proved itself the reason for its refusal, in plain words."""
        words = "".join(c if " " <= c <= "~" else "?" for c in why)
        self._send(f"no {words[:500]}\n".encode())

    def close(self) -> None:
        """End the connection once all is sent, without a call of `ended`; later see `drop`."""
        if self.is_open and not self._is_closing:
            self._is_closing, self.since = True, machine.running_s()
            self._heard, self._ended = _nothing, _nothing
            self._flush()

    def drop(self) -> None:
        """End the connection at once, without a call of `ended`."""
        self._heard, self._ended = _nothing, _nothing
        if self.is_open:
            self._watch(0)
            self._sock.close()

    def _watch(self, events: int) -> None:
        if events != self._events:
            if self._events:
                self._loop.forget(self._sock.fileno())
            if events:
                self._loop.watch(self._sock.fileno(), self.turn, events)
            self._events = events

    def _send(self, data: bytes) -> None:
        self._waiting += data
        self._flush()

    def _flush(self) -> None:
        if not self.is_open:
            return
        try:
            while self._waiting:
                del self._waiting[: self._sock.send(self._waiting)]
        except BlockingIOError:
            pass
        except OSError:  # reading gives the error, after the peer's last messages
            self._waiting.clear()
        if len(self._waiting) > MOST_WAITING:
            self._waiting.clear()
            self._end(Ended("it does not read"))
            return
        self._watch(select.POLLIN | (select.POLLOUT if self._waiting else 0))
        if self._is_closing and not self._waiting:
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)

    def turn(self) -> None:
        """Read the bytes that have come, and send those that wait."""
        if self._waiting:
            self._flush()
        data, end = self._read()
        if not self.is_open or self._is_closing:
            if end:
                self.drop()
            return
        messages: list[Any] = []
        was_ready = self.wire.is_ready
        try:
            messages = self.wire.feed(data)
        except Foreign as error:
            end = Ended(str(error), is_final=error.is_final)
        if self.wire.out:
            self._send(self.wire.take())
        if self.wire.is_ready and not was_ready:
            self._ready()
        if messages:
            self._heard(messages)
        if end:
            self._end(end)

    def _read(self) -> tuple[bytes, Ended | None]:
        """Read all bytes that have come; return them, with the end of the connection or None."""
        data = bytearray()
        most = MOST_READ if self.wire.is_hub else 16 * MOST_READ
        while self.is_open and len(data) < most:
            try:
                read = self._sock.recv(MOST_READ)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                return bytes(data), Ended(error.strerror or str(error))
            if not read:
                return bytes(data), Ended("closed", is_certain=True)
            data += read
        return bytes(data), None

    def _end(self, end: Ended) -> None:
        ended, self._ended, self._heard = self._ended, _nothing, _nothing
        ended(end)
        if not end.is_certain and not self.wire.is_ready:  # refused: the peer reads the reason
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

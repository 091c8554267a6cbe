"""A member's connection to the hub."""

from __future__ import annotations

import errno
import os
import select
import socket

from spawnlaunch.gang.member_records import Heard, Linked, Unlinked
from spawnlaunch.gang.stream import End, Stream, tune
from spawnlaunch.gang.wire import OTHER_RUN, Wire
from spawnlaunch.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from spawnlaunch.gang.member_records import Event
    from spawnlaunch.gang.messages import ToHub
    from spawnlaunch.gang.stream import Loop

CONNECT_S = 5.0  # for a connection to be there, and for the handshake


class Endpoint(NamedTuple):
    """Where the hub listens, and the secret that both ends must know.

    A port that was computed may be in use by another program. So the hub takes the first free one
    of `ports`, and members try them all: the handshake tells which is the hub's.
    """

    host: str
    port: int
    run: str
    secret: bytes
    lost_after_s: float = 10.0
    ports: int = 1


class Link:
    """Connects when it is told to, and says what becomes of it: Linked, Heard, Unlinked."""

    def __init__(self, loop: Loop, endpoint: Endpoint, happened: Callable[[Event], None]) -> None:
        self._loop, self._endpoint, self._happened = loop, endpoint, happened
        self._stream: Stream | None = None
        self._connecting: list[socket.socket] = []  # one, while it lasts
        self._is_linked = False
        self._code, self._why = 0, ""  # of the last attempt's failure
        self._port = 0  # which one is tried

    def connect(self) -> None:
        """Look up the endpoint, whose address may be another one now, and connect to it."""
        self._port = 0
        self._connect()

    def _connect(self) -> None:
        self.drop()
        endpoint = self._endpoint
        try:
            port = endpoint.port + self._port
            found = socket.getaddrinfo(endpoint.host, port, type=socket.SOCK_STREAM)
            family, kind, protocol, _, address = found[0]
            sock = socket.socket(family, kind, protocol)
            tune(sock, endpoint.lost_after_s)
            code = sock.connect_ex(address)
        except OSError as error:
            self._code, self._why = 0, error.strerror or str(error)
            self._loop.alarm(self._not_found, 0.0)
            return
        if code not in (0, errno.EINPROGRESS):
            sock.close()
            self._code, self._why = code, os.strerror(code)
            self._loop.alarm(self._not_found, 0.0)
            return
        self._connecting = [sock]
        self._loop.watch(sock.fileno(), self._reached, select.POLLOUT)
        self._loop.alarm(self._too_late, CONNECT_S)

    def say(self, message: ToHub) -> None:
        if self._stream and self._is_linked:
            self._stream.say(message)

    def close(self) -> None:
        """End the connection once all is said; nothing of it is heard any more."""
        stream, self._stream, self._is_linked = self._stream, None, False
        if stream:
            stream.close()
        self._stop_connecting()

    def drop(self) -> None:
        """End it at once."""
        stream, self._stream, self._is_linked = self._stream, None, False
        if stream:
            stream.drop()
        self._stop_connecting()

    def _stop_connecting(self) -> None:
        self._loop.alarm(self._too_late, None)
        self._loop.alarm(self._not_found, None)
        while self._connecting:
            sock = self._connecting.pop()
            self._loop.forget(sock.fileno())
            sock.close()

    def _not_found(self) -> None:
        self._fail(self._why, is_there=self._code == errno.ECONNREFUSED)

    def _too_late(self) -> None:
        is_there = self._stream is not None
        self.drop()
        self._fail("no answer", is_there)

    def _fail(self, why: str, is_there: bool) -> None:
        """Try the next port of a host that answers; after the last one, say why there is no hub."""
        self._port += 1
        if is_there and self._port < self._endpoint.ports:
            self._connect()
        else:
            self._happened(Unlinked(why))

    def _reached(self) -> None:
        sock = self._connecting.pop()
        self._loop.forget(sock.fileno())
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        is_itself = not code and sock.getsockname() == sock.getpeername()  # of an ephemeral port
        if code or is_itself:
            self._loop.alarm(self._too_late, None)
            sock.close()
            code = code or errno.ECONNREFUSED
            self._fail(os.strerror(code), is_there=code == errno.ECONNREFUSED)
            return
        wire = Wire(self._endpoint.secret, self._endpoint.run, is_hub=False)
        self._stream = Stream(self._loop, sock, wire, self._heard, self._ended)
        self._stream.ready = self._ready
        self._stream.begin()

    def _ready(self) -> None:
        self._loop.alarm(self._too_late, None)
        self._is_linked = True
        self._happened(Linked())

    def _heard(self, messages: list[Any]) -> None:
        for message in messages:
            if self._is_linked:
                self._happened(Heard(message))

    def _ended(self, end: End) -> None:
        self._loop.alarm(self._too_late, None)
        was_linked, self._stream, self._is_linked = self._is_linked, None, False
        is_others = self._endpoint.ports > 1 and str(end) == OTHER_RUN
        if was_linked or (end.is_final and not is_others):
            self._happened(Unlinked(str(end), end.is_final))
        else:
            self._fail(str(end), is_there=True)

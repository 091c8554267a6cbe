"""The hub's connections: strangers prove themselves, members are heard, and `hub` decides."""

from __future__ import annotations

import errno
import socket
import time
from functools import partial

from spawnlaunch.gang import hub as rules
from spawnlaunch.gang import hub_records as records
from spawnlaunch.gang.messages import Hello
from spawnlaunch.gang.stream import End, Stream, tune
from spawnlaunch.gang.wire import Wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from spawnlaunch.gang.hub_records import Event
    from spawnlaunch.gang.link import Endpoint
    from spawnlaunch.gang.settings import Settings
    from spawnlaunch.gang.stream import Loop

MOST_STRANGERS = 64  # at a time, beside those that are expected
PROVE_S = 10.0  # for a stranger to say hello
LAST_S = 10.0  # for members to hear the end


class Server:
    """The hub on its endpoint. `note` is called with a word that `words` knows, and details."""

    def __init__(
        self,
        loop: Loop,
        endpoint: Endpoint,
        settings: Settings,
        who: str,
        note: Callable[[str, tuple[str, ...]], None],
    ) -> None:
        """Listen; `who` is the launcher that has this hub. Raises OSError."""
        self._loop, self._endpoint, self._who, self._note = loop, endpoint, who, note
        now = time.monotonic()
        self.hub = records.Hub(settings, since=now, told=now)
        self._streams: dict[int, Stream] = {}
        self._addresses: dict[int, str] = {}
        self._strangers: dict[int, Callable[[], None]] = {}  # and what their time's end calls
        self._told: set[str] = set()  # about strangers, once each
        self._count = 0
        self._listener: socket.socket | None = _listen(endpoint)
        name = self._listener.getsockname()
        self.port = name[1]
        # by which its own launcher reaches it
        self.own_address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(name[0], str(name[0]))
        loop.watch(self._listener.fileno(), self._accept)
        self._tick()

    @property
    def is_over(self) -> bool:
        """Whether all members have heard how it ended, and those that were near, too."""
        if self.hub.phase != records.ENDED or self._streams:
            return False
        return self._listener is None or rules.is_over(self.hub, time.monotonic())

    def close(self) -> None:
        """Drop what is still there."""
        self._shut()
        for call in (self._tick, *self._strangers.values()):
            self._loop.alarm(call, None)
        for stream in self._streams.values():
            stream.drop()
        self._streams.clear()

    # Connections

    def _accept(self) -> None:
        while self._listener:
            try:
                sock, address = self._listener.accept()
            except OSError:
                return
            if len(self._strangers) >= MOST_STRANGERS + self.hub.settings.total:
                sock.close()
                self._once("crowd", address[0])
                continue
            tune(sock, self._endpoint.lost_after_s)
            self._count += 1
            conn = self._count
            wire = Wire(self._endpoint.secret, self._endpoint.run, is_hub=True)
            self._addresses[conn] = address[0]
            self._strangers[conn] = partial(self._too_slow, conn)
            self._loop.alarm(self._strangers[conn], PROVE_S)
            self._streams[conn] = Stream(
                self._loop, sock, wire, partial(self._heard, conn), partial(self._ended, conn)
            )

    def _shut(self) -> None:
        if self._listener:
            self._loop.forget(self._listener.fileno())
            self._listener.close()
            self._listener = None

    def _once(self, kind: str, *about: str) -> None:
        """Say something about strangers, once: they may come by the thousand."""
        what = f"{kind} {about[1:]}"
        if what not in self._told:
            self._told.add(what)
            self._note(kind, about)

    def _too_slow(self, conn: int) -> None:
        self._once("stranger", self._addresses[conn], "it says nothing")
        self._forget(conn).drop()

    def _forget(self, conn: int) -> Stream:
        """It is none of ours any more."""
        if conn in self._strangers:
            self._loop.alarm(self._strangers.pop(conn), None)
        del self._addresses[conn]
        return self._streams.pop(conn)

    def _ended(self, conn: int, end: End) -> None:
        is_stranger = conn in self._strangers
        address = self._addresses[conn]
        stream = self._forget(conn)
        if is_stranger and end.is_final:
            stream.refuse(str(end))
        if is_stranger and end.certain and stream.wire.has_begun:
            end = End("it has another token")
        if is_stranger and not end.certain:
            self._once("stranger", address, str(end))
        if not is_stranger:
            self._happened(records.Gone(conn, end.certain))

    def _heard(self, conn: int, messages: list[Any]) -> None:
        for message in messages:
            if conn not in self._streams:
                return
            if conn not in self._strangers:
                self._happened(records.Heard(conn, message))
            elif isinstance(message, Hello):
                self._loop.alarm(self._strangers.pop(conn), None)
                is_local = message.who == self._who
                # the name that all reach the hub by; here it may be one for this machine alone
                address = self._endpoint.host if is_local else self._addresses[conn]
                self._happened(records.Came(conn, message, address, is_local))

    # The hub

    def _tick(self) -> None:
        self._happened(records.Tick())

    def _happened(self, event: Event) -> None:
        before = self.hub.phase
        self.hub, actions = rules.step(self.hub, event, time.monotonic())
        for action in actions:
            if isinstance(action, records.Note):
                self._note(action.kind, action.about)
            elif action.conn in self._streams:
                if isinstance(action, records.Say):
                    self._streams[action.conn].say(action.message)
                else:
                    self._forget(action.conn).close()
        if self.hub.phase == records.RUNNING and self._is_complete():
            self._shut()
        is_last = before != records.ENDED or isinstance(event, records.Came)
        if self.hub.phase == records.ENDED and is_last:
            self._loop.alarm(self._give_up, LAST_S)
        self._loop.alarm(self._tick, rules.due(self.hub, time.monotonic()))

    def _is_complete(self) -> bool:
        """Whether nobody else can join, now or later."""
        settings = self.hub.settings
        return not (settings.is_elastic or settings.max_restarts or settings.returns)

    def _give_up(self) -> None:
        """Wait no longer for members that do not hear the end, nor for others that still come."""
        self._shut()
        for conn in list(self._streams):
            self._forget(conn).drop()


def _listen(endpoint: Endpoint) -> socket.socket:
    """A socket at the endpoint's address, and not at all of this machine's; on its first free port.

    A name may stand for loopback here, as Debian's /etc/hosts has it; then others need all. That of
    a pod which has just begun may not be known to its DNS yet; the pod's /etc/hosts has its own.
    """
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except socket.gaierror:
        found = socket.getaddrinfo(socket.gethostname(), endpoint.port, type=socket.SOCK_STREAM)
    family, _, _, _, (host, _, *rest) = found[0]
    is_name = not endpoint.host[:1].isdigit() and endpoint.host not in ("localhost", "::1")
    if is_name and str(host).startswith("127."):
        host = ""
    last = endpoint.port + endpoint.ports - 1
    for port in range(endpoint.port, last):
        try:
            return _bound(family, (host, port, *rest))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    return _bound(family, (host, last, *rest))


def _bound(family: int, address: tuple[Any, ...]) -> socket.socket:
    sock = socket.socket(family)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(1024)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock

"""A node's connection to the hub."""

from __future__ import annotations

import _socket as socket
import errno
import os
import select
from functools import partial

from spawnlaunch.base import machine, records
from spawnlaunch.multinode import token
from spawnlaunch.multinode.node import LEFT, Node
from spawnlaunch.multinode.stream import Ended, Stream, tune
from spawnlaunch.multinode.wire import OTHER_RUN, OTHER_TOKEN, Wire, secret_of
from spawnlaunch.world import lookup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from spawnlaunch.base.events import Loop
    from spawnlaunch.cli import flags
    from spawnlaunch.multinode.messages import Report
    from spawnlaunch.multinode.node import Launcher
    from spawnlaunch.world.gathering import Gathering

CONNECT_S = 5.0  # for connection and handshake; each further attempt has twice as long
LONG_S = 20.0  # the most that an attempt has: a hub to which thousands connect at once is busy
TURN_S = 0.25


class Endpoint(records.NamedTuple):
    """The address where the hub listens, and the secret that both ends must know.

    Another program may use a computed port. So the hub takes the first free one of `ports` ports,
    and nodes try them all: the handshake shows which is the hub's.
    """

    host: str
    port: int
    run: str
    secret: bytes
    lost_after_s: float = 10.0
    ports: int = 1

    def own_addresses(self) -> list[lookup.Found]:
        """Look up the addresses for the hub to listen on, on its own machine. Raises OSError.

        DNS may not know the name of a pod that has just started; the pod's /etc/hosts has its host
        name.
        """
        return lookup.find((self.host, machine.uname().nodename), self.port)

    def look_up(self, loop: Loop, is_over: Callable[[], bool]) -> list[lookup.Found]:
        """Look up these addresses in a child process, until `is_over`; then [].

        Raises OSError.
        """
        if lookup.numeric(self.host, self.port) or not lookup.HAS_CHILDREN:
            return self.own_addresses()
        asked, answers = lookup.Lookup(self.own_addresses), []  # type: tuple[lookup.Lookup, list[bool]]
        loop.watch(asked.fd, lambda: answers.append(True))
        while not answers and not is_over():
            loop.turn(TURN_S)
        loop.forget(asked.fd)
        if answers:
            return asked.found()
        asked.end()
        return []


def endpoint_of(
    gathering: Gathering,
    run: str,
    request: flags.Request,
    environ: Mapping[str, str],
    lost_after_s: float,
) -> Endpoint:
    """Return the endpoint of a launch. Raises UsageError where its token cannot be used."""
    secret = secret_of(token.find(request.token_file, environ), run)
    return Endpoint(gathering.host, gathering.port, run, secret, lost_after_s, gathering.ports)


class Link:
    """A node's connection to the hub, in the launcher's event loop, with the node's rules."""

    def __init__(
        self,
        loop: Loop,
        endpoint: Endpoint,
        report: Report,
        join_s: float,
        launcher: Launcher,
        beat_s: float = 1.0,
        dead_s: float = 60.0,
    ) -> None:
        """Make the rules of a node; call `look` when workers can be started.

        The launcher does what the rules ask for, and tells them what happens to its workers and to
        itself; after that it calls `look`. So this room knows nothing of processes.
        """
        self._loop, self._endpoint = loop, endpoint
        self.node = Node(
            report, join_s, beat_s, dead_s, self, launcher, machine.running_s(),
            place=f"{endpoint.host}:{endpoint.port}",
        )  # fmt: skip
        self._has_news = False  # since the rules have begun to look
        self._stream: Stream | None = None
        self._sock: socket.socket | None = None  # that is being connected
        self._lookup: lookup.Lookup | None = None  # the look-up that is under way
        self._patience_s = CONNECT_S
        # Addresses still to try, the first being tried; and whether a host refused a connection.
        self._ways, self._is_nobody = [], False  # type: tuple[list[lookup.Found], bool]

    def look(self) -> None:
        """Have the rules look at what is new, at the end of this turn of the loop."""
        self._has_news = True
        self._loop.alarm(self._reconcile, 0.0)

    def _reconcile(self) -> None:
        self._has_news = False
        due = self.node.reconcile(machine.running_s())
        wait_s = 0.0 if self._has_news else max(0.0, due - machine.running_s())
        self._loop.alarm(self._reconcile, wait_s if self.node.stage != LEFT else None)

    def connect(self) -> None:
        """Look up the endpoint, as its addresses may have changed, and connect to one of them.

        A name may have several addresses, some in a network where the hub does not listen.
        """
        self.drop()
        endpoint, port = self._endpoint, self._endpoint.port
        self._ways, self._is_nobody = [], False
        found = lookup.numeric(endpoint.host, port)
        try:
            if not found and not lookup.HAS_CHILDREN:
                found = lookup.find((endpoint.host,), port)
            elif not found:
                self._lookup = lookup.Lookup(partial(lookup.find, (endpoint.host,), port))
                self._loop.watch(self._lookup.fd, self._looked_up)
        except OSError as error:
            self._fail_by(error)
        else:
            if found:
                self._try(found)

    def _looked_up(self) -> None:
        assert self._lookup
        asked, self._lookup = self._lookup, None
        self._loop.forget(asked.fd)
        try:
            found = asked.found()
        except OSError as error:
            self._fail_by(error)
        else:
            self._try(found)

    def _try(self, found: list[lookup.Found]) -> None:
        self._ways = [
            (family, (host, first + n, *more))
            for family, (host, first, *more) in found for n in range(self._endpoint.ports)
        ]  # fmt: skip
        self._connect()

    def _connect(self) -> None:
        family, address = self._ways[0]
        try:
            sock = machine.socket(family, socket.SOCK_STREAM)
            tune(sock, self._endpoint.lost_after_s)
            code = sock.connect_ex(address)
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, os.strerror(code))
        except OSError as error:
            self._fail_by(error)
            return
        self._sock = sock
        self._loop.watch(sock.fileno(), self._reached, select.POLLOUT)
        self._loop.alarm(self._too_late, self._patience_s)

    def say(self, report: Report | None) -> None:
        if self._stream:
            self._stream.say(report)

    def close(self) -> None:
        """End the connection once all messages are sent; incoming messages are ignored."""
        stream, self._stream = self._stream, None
        if stream:
            stream.close()
        self.drop()

    def drop(self) -> None:
        """End the connection at once, or the attempt to connect."""
        stream, self._stream = self._stream, None
        if stream:
            stream.drop()
        self._loop.alarm(self._too_late, None)
        if self._lookup:
            self._loop.forget(self._lookup.fd)
            self._lookup.end()
            self._lookup = None
        if self._sock:
            self._loop.forget(self._sock.fileno())
            self._sock.close()
            self._sock = None

    def _fail_by(self, error: OSError) -> None:
        why = error.strerror or str(error)
        self._fail(why, is_there=error.errno == errno.ECONNREFUSED)

    def _too_late(self) -> None:
        is_there = self._stream is not None
        self._patience_s = min(2 * self._patience_s, LONG_S)
        self.drop()
        self._fail("no answer", is_there, is_mute=True)

    def _fail(self, why: str, is_there: bool, is_mute: bool = False) -> None:
        """Try the host's next port if it answers, or the next address; else note the failure.

        A host that does not answer may be busy or frozen, and one without a route may run a hub:
        neither proves that there is no hub.
        """
        self._is_nobody = not is_mute and (is_there or self._is_nobody)
        tried, left = self._ways[:1], self._ways[1:]
        self._ways = [way for way in left if is_there or way[1][0] != tried[0][1][0]]
        if self._ways:
            self.drop()
            self._connect()
        else:
            self.node.unlinked(machine.running_s(), why, is_nobody=self._is_nobody)
            self.look()

    def _reached(self) -> None:
        sock, self._sock = self._sock, None
        assert sock
        self._loop.forget(sock.fileno())
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        # A socket can connect to itself, where the port is an ephemeral one.
        is_itself = not code and sock.getsockname() == sock.getpeername()
        if code or is_itself:
            self._loop.alarm(self._too_late, None)
            sock.close()
            code = code or errno.ECONNREFUSED
            self._fail_by(OSError(code, os.strerror(code)))
            return
        wire = Wire(self._endpoint.secret, self._endpoint.run, is_hub=False)
        self._stream = Stream(self._loop, sock, wire, self._heard, self._ended, self._ready)

    def _ready(self) -> None:
        self._loop.alarm(self._too_late, None)
        self._patience_s = CONNECT_S
        self.node.linked(machine.running_s())
        self.look()

    def _heard(self, orders: list[Any]) -> None:
        for order in orders:
            self.node.heard(order, machine.running_s())
        self.look()

    def _ended(self, end: Ended) -> None:
        self._loop.alarm(self._too_late, None)
        was_ready = self._stream is not None and self._stream.wire.is_ready
        if self._stream and str(end) == OTHER_TOKEN:  # so that the hub's lines say why
            self._stream.refuse(OTHER_TOKEN)
        self._stream = None
        is_others = self._endpoint.ports > 1 and str(end) == OTHER_RUN
        if was_ready or (end.is_final and not is_others):
            self.node.unlinked(machine.running_s(), str(end), end.is_final)
            self.look()
        else:
            self._fail(str(end), is_there=True)

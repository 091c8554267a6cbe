"""A member's connection to the hub."""

from __future__ import annotations

import _socket as socket
import errno
import os
import select
from functools import partial

from spawnlaunch.base import machine, reading, records
from spawnlaunch.multinode.member import Member
from spawnlaunch.multinode.settings import secret_token
from spawnlaunch.multinode.stream import Connection, Ended, tune
from spawnlaunch.multinode.wire import OTHER_RUN, OTHER_TOKEN, Wire, secret_of
from spawnlaunch.world import host, lookup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from spawnlaunch.base.events import Loop
    from spawnlaunch.cli import flags
    from spawnlaunch.multinode.member import Launcher
    from spawnlaunch.multinode.messages import Hello, ToHub
    from spawnlaunch.multinode.stream import EventLoop
    from spawnlaunch.world.identity import Gathering

CONNECT_S = 5.0  # for connection and handshake; each further attempt has twice as long
LONG_S = 20.0  # the most that an attempt has: a hub to which thousands connect at once is busy
TURN_S = 0.25
HURRY_S = 4.5  # for name servers to answer, after the launcher got a signal to end


class Endpoint(records.NamedTuple):
    """The address where the hub listens, and the secret that both ends must know.

    Another program may use a computed port. So the hub takes the first free one of `ports` ports,
    and members try them all: the handshake shows which is the hub's.
    """

    host: str
    port: int
    run: str
    secret: bytes
    lost_after_s: float = 10.0
    ports: int = 1

    @property
    def place(self) -> str:
        """The host and the ports, for the user."""
        last = f"-{self.port + self.ports - 1}" if self.ports > 1 else ""
        return f"{self.host}:{self.port}{last}"

    def listen_addresses(self) -> list[lookup.Address]:
        """Look up the addresses for the hub to listen on, on its own machine. Raises OSError.

        DNS may not know the name of a pod that has just started; the pod's /etc/hosts has its host
        name.
        """
        return lookup.find((self.host, machine.uname().nodename), self.port)

    def look_up(self, loop: Loop, is_over: Callable[[], bool]) -> list[lookup.Address]:
        """Look up these addresses in a child process, until `is_over`; then [].

        Raises OSError.
        """
        if lookup.numeric(self.host, self.port) or not lookup.HAS_CHILDREN:
            return self.listen_addresses()
        child, answers = lookup.Lookup(self.listen_addresses), list[bool]()
        loop.watch(child.fd, lambda: answers.append(True))
        while not answers and not is_over():
            loop.turn(TURN_S)
        loop.forget(child.fd)
        if answers:
            return child.addresses()
        child.end()
        return []


def endpoint_of(
    gathering: Gathering,
    run: str,
    request: flags.Request,
    environ: Mapping[str, str],
    lost_after_s: float,
) -> Endpoint:
    """Return the endpoint of a launch. Raises UsageError where its token cannot be used."""
    secret = secret_of(secret_token(request.token_file, environ), run)
    return Endpoint(gathering.host, gathering.port, run, secret, lost_after_s, gathering.ports)


class Link:
    """A member's connection to the hub; it reports to the member when it is made, fails or ends."""

    def __init__(
        self,
        loop: EventLoop,
        endpoint: Endpoint,
        hello: Hello,
        join_s: float,
        launcher: Launcher,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Make the member of a launcher; call its `begin` when workers can be started.

        The launcher does what the member asks, and reports to it what happens to its workers and
        to itself. So hub and member know nothing of processes. `join_s` is in seconds of `clock`.
        """
        boot = hello.boot or (reading.file_text("/proc/sys/kernel/random/boot_id") or "").strip()
        self.member = Member(
            hello._replace(boot=boot), join_s, self, launcher, clock or machine.monotonic,
            lambda after_s: loop.alarm(self.member.tick, after_s, always=True),
            place=endpoint.place,
        )  # fmt: skip
        self._loop, self._endpoint = loop, endpoint
        self._stream: Connection | None = None
        self._connecting: list[socket.socket] = []  # the one socket that is being connected
        self._lookup: lookup.Lookup | None = None  # the look-up that is under way
        self._patience_s = CONNECT_S
        self._until: float | None = None  # when to stop waiting for name servers
        self._is_linked = False
        self._error = OSError()  # of the last attempt
        # Addresses still to try, the first being tried; and whether a host refused a connection.
        self._ways, self._is_nobody = [], False  # type: tuple[list[lookup.Address], bool]
        self._hosts: set[str] = set()  # addresses of the last attempts
        self._other_run = ""  # a hub of another run has refused this launcher in these attempts

    def connect(self) -> None:
        """Look up the endpoint, as its addresses may have changed, and connect to one of them.

        A name may have several addresses, some in a network where the hub does not listen.
        """
        self.drop()
        endpoint, port = self._endpoint, self._endpoint.port
        self._ways, self._is_nobody = [], False
        addresses = lookup.numeric(endpoint.host, port)
        try:
            if not addresses and not lookup.HAS_CHILDREN:
                addresses = lookup.find((endpoint.host,), port)
            elif not addresses:
                self._lookup = lookup.Lookup(partial(lookup.find, (endpoint.host,), port))
                self._loop.watch(self._lookup.fd, self._looked_up)
                self._loop.alarm(self._too_late, self._name_server_s())
        except OSError as error:
            self._none(error)
            return
        if addresses:
            self._try(addresses)

    def hurry(self) -> None:
        """Limit the look-up to HURRY_S, as the launcher got a signal, which the hub should hear."""
        self._until = self._until or machine.monotonic() + HURRY_S
        if self._lookup:
            self._loop.alarm(self._too_late, self._name_server_s())

    def _name_server_s(self) -> float | None:
        return self._until and max(0.0, self._until - machine.monotonic())

    def _looked_up(self) -> None:
        assert self._lookup
        answered, self._lookup = self._lookup, None
        self._loop.forget(answered.fd)
        self._loop.alarm(self._too_late, None)
        try:
            addresses = answered.addresses()
        except OSError as error:
            self._none(error)
        else:
            self._try(addresses)

    def _none(self, error: OSError) -> None:
        """Report this error from the event loop: callers of `connect` expect no event at once."""
        self._error = error.with_traceback(None)
        self._loop.alarm(self._on_no_hub, 0.0)

    @property
    def leads_here(self) -> bool:
        """Whether the endpoint's address is this machine's."""
        return any(map(host.is_of_this_machine, self._hosts))

    def _try(self, addresses: Sequence[lookup.Address]) -> None:
        self._hosts, self._other_run = {str(address[0]) for _, address in addresses}, ""
        ports = range(self._endpoint.ports)
        self._ways = [(family, (host, first + n, *more))
                      for family, (host, first, *more) in addresses for n in ports]  # fmt: skip
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
            self._none(error)
            return
        self._connecting = [sock]
        self._loop.watch(sock.fileno(), self._reached, select.POLLOUT)
        self._loop.alarm(self._too_late, self._patience_s)

    def send(self, message: ToHub) -> None:
        if self._stream and self._is_linked:
            self._stream.send(message)

    def close(self) -> None:
        """End the connection once all messages are sent; incoming messages are ignored."""
        stream, self._stream, self._is_linked = self._stream, None, False
        if stream:
            stream.close()
        self._stop_connecting()

    def drop(self) -> None:
        """End the connection at once."""
        stream, self._stream, self._is_linked = self._stream, None, False
        if stream:
            stream.drop()
        self._stop_connecting()

    def _stop_connecting(self) -> None:
        self._loop.alarm(self._too_late, None)
        self._loop.alarm(self._on_no_hub, None)
        if self._lookup:
            self._loop.forget(self._lookup.fd)
            self._lookup.end()
            self._lookup = None
        while self._connecting:
            sock = self._connecting.pop()
            self._loop.forget(sock.fileno())
            sock.close()

    def _on_no_hub(self) -> None:
        why = self._error.strerror or str(self._error)
        self._fail(why, is_there=self._error.errno == errno.ECONNREFUSED)

    def _too_late(self) -> None:
        is_there = self._stream is not None
        self._patience_s = min(2 * self._patience_s, LONG_S)
        self.drop()
        self._fail("no answer", is_there, is_mute=True)

    def _fail(self, why: str, is_there: bool, is_mute: bool = False) -> None:
        """Try the host's next port if it answers, or the next address; else report the failure.

        A host that does not answer may be busy or frozen, and one without a route may run a hub:
        neither proves that there is no hub.
        """
        self._is_nobody = not is_mute and (is_there or self._is_nobody)
        tried, more = self._ways[:1], self._ways[1:]
        self._ways = [way for way in more if is_there or way[1][0] != tried[0][1][0]]
        if self._ways:
            self.drop()
            self._connect()
        else:
            self.member.unlinked(self._other_run or why, is_nobody=self._is_nobody)

    def _reached(self) -> None:
        sock = self._connecting.pop()
        self._loop.forget(sock.fileno())
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        # A socket can connect to itself, where the port is an ephemeral one.
        is_itself = not code and sock.getsockname() == sock.getpeername()
        if code or is_itself:
            self._loop.alarm(self._too_late, None)
            sock.close()
            code = code or errno.ECONNREFUSED
            self._fail(os.strerror(code), is_there=code == errno.ECONNREFUSED)
            return
        wire = Wire(self._endpoint.secret, self._endpoint.run, is_hub=False)
        self._stream = Connection(self._loop, sock, wire, self._received, self._ended, self._ready)
        self._stream.begin()

    def _ready(self) -> None:
        self._loop.alarm(self._too_late, None)
        self._is_linked, self._patience_s = True, CONNECT_S
        self.member.linked()

    def _received(self, messages: list[Any]) -> None:
        for message in messages:
            if self._is_linked:
                self.member.received(message)

    def _ended(self, end: Ended) -> None:
        self._loop.alarm(self._too_late, None)
        if self._stream and str(end) == OTHER_TOKEN:  # so that the hub's lines say why
            self._stream.refuse(OTHER_TOKEN)
        was_linked, self._stream, self._is_linked = self._is_linked, None, False
        is_others = self._endpoint.ports > 1 and str(end).startswith(OTHER_RUN)
        if is_others:
            self._other_run = str(end)
        if was_linked or (end.is_final and not is_others):
            self.member.unlinked(str(end), end.is_final)
        else:
            self._fail(str(end), is_there=True)

"""The hub's connections: they check strangers, and pass the messages of members to `hub`."""

from __future__ import annotations

import _socket as socket
import errno
from functools import partial

from spawnlaunch.base import machine
from spawnlaunch.multinode import deadlines, hub, phases
from spawnlaunch.multinode.messages import Hello
from spawnlaunch.multinode.stream import Connection, Ended, tune
from spawnlaunch.multinode.wire import Wire
from spawnlaunch.world.inherited import is_loopback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from typing import Any

    from spawnlaunch.multinode import link
    from spawnlaunch.multinode.messages import Stacked, ToMember
    from spawnlaunch.multinode.settings import Settings
    from spawnlaunch.multinode.stream import EventLoop
    from spawnlaunch.world import lookup

MOST_STRANGERS = 64  # at a time, beside those that are expected
MOST_MEMBERS = 64  # beside twice the expected ones: a returning launcher's old connection may stay
# Connections accepted in one turn of the loop, in which no other connection is read. One turn reads
# a thousand. Of thousands that connect at once, those beyond the kernel's queue find the hub
# seconds later.
MOST_AT_ONCE = 512
AT_ONCE = 100  # one stranger of so many is dropped to make room for others
MOST_NOTES = 16  # lines about strangers
MOST_WAITING = 65535  # to be accepted; the kernel has a limit of its own (net.core.somaxconn)
PROVE_S = 10.0  # for a stranger to send its Hello
PAUSE_S = 0.5  # without accepting, where no connection can be accepted
LAST_S = 10.0  # for members to read the End
# Errors for a lack of this process or this machine (accept(2), epoll_ctl(2)).
LACKING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC})


def most_connections(settings: Settings) -> int:
    """The largest number of connections that a hub has at a time."""
    return MOST_STRANGERS + MOST_MEMBERS + 3 * settings.most_launchers


class Server:
    """The hub on its endpoint, with its connections."""

    def __init__(
        self,
        loop: EventLoop,
        endpoint: link.Endpoint,
        settings: Settings,
        launcher_id: str,
        print_line: Callable[[str], None],
        room: int = 2**20,
        addresses: Sequence[lookup.Address] = (),
        start_line: Callable[[int, int], str] = lambda *_: "",
        compare: Callable[[Sequence[Stacked]], None] = lambda _: None,
        remark: str = "",
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Listen on the endpoint, and start the hub. Raises OSError.

        `launcher_id`: the unique name of the hub's own launcher. `print_line` prints a line for the
        user. `room`: the most connections, as other parts need descriptors, too. `addresses`: those
        of the endpoint, if they have been looked up. `start_line` returns the command line that
        starts a launcher again, by its node rank and workers; `compare` prints where ranks
        hang; `remark` is about the endpoint, for lines that name it.
        """
        self._loop, self._endpoint, self._launcher_id = loop, endpoint, launcher_id
        self.print_line = print_line
        self._alarms = deadlines.Alarms(loop)  # of connections
        self._room, self.start_line, self.compare = room, start_line, compare
        self.hub = hub.Hub(settings, self, clock or machine.monotonic, self._wake)
        self.streams: dict[int, Connection] = {}
        self._addresses: dict[int, str] = {}
        self._strangers: dict[int, Callable[[], None]] = {}  # with the call at the end of PROVE_S
        self._printed: set[Hashable] = set()  # keys of lines about strangers, each printed once
        self.refused_connections: list[Connection] = []  # they still read the reason
        self._is_paused = False
        self._count = 0
        self._listener: socket.socket | None = _listen(endpoint, addresses)
        name = self._listener.getsockname()
        self.port = name[1]
        self.place = f"{endpoint.host}:{self.port}" + (f" ({remark})" if remark else "")
        # The address by which the hub's own launcher connects.
        self.local_address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(name[0], str(name[0]))
        loop.watch(self._listener.fileno(), self._accept)
        self.hub.tick()

    @property
    def is_over(self) -> bool:
        """Whether all members, and launchers about to connect, have been told of the end."""
        if self.hub.phase != phases.ENDED or self.members:
            return False
        return self._listener is None or self.hub.is_over

    def close(self) -> None:
        """Drop all connections, and stop listening."""
        self.shut()
        for call in (self.hub.tick, self._give_up):
            self._loop.alarm(call, None)
        for call in self._strangers.values():
            self._alarms.alarm(call, None)
        for stream in self.streams.values():
            stream.drop()
        self.streams.clear()

    # Connections

    def _accept(self) -> None:
        for _ in range(MOST_AT_ONCE):
            try:
                if self._listener:
                    sock, address = machine.accept(self._listener)
                    self._take(sock, address[0].removeprefix("::ffff:"))  # IPv4 (ipv6(7))
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in LACKING:
                    self._pause(error)
                    return  # other errors are of a connection that has ended (accept(2))

    def _take(self, sock: socket.socket, address: str) -> None:
        """Take a stranger's new connection, which has PROVE_S for its Hello. Raises OSError."""
        most = min(self._room - self.members, MOST_STRANGERS + self.hub.settings.most_launchers)
        if len(self._strangers) + len(self.refused_connections) >= most:
            self.refused_connections = [
                stream for stream in self.refused_connections if stream.is_open
            ]
        if len(self._strangers) + len(self.refused_connections) >= most:
            self._report_crowd(address)
            if not self._evict_strangers():
                sock.close()
                return
        tune(sock, self._endpoint.lost_after_s)
        self._count += 1
        conn = self._count
        wire = Wire(self._endpoint.secret, self._endpoint.run, is_hub=True)
        try:
            self.streams[conn] = Connection(
                self._alarms, sock, wire, partial(self._received, conn), partial(self._ended, conn)
            )
        except OSError:
            sock.close()
            raise
        self._addresses[conn] = address
        self._strangers[conn] = partial(self._too_slow, conn)
        self._alarms.alarm(self._strangers[conn], PROVE_S)

    @property
    def members(self) -> int:
        return len(self.streams) - len(self._strangers)

    def _evict_strangers(self) -> bool:
        """Drop some strangers to make room: refused ones, else the oldest silent ones.

        A launcher sends as soon as it is connected. All launchers of a launch may connect from one
        address, so no address has a limit of its own; but the address with the most strangers
        loses them. Of thousands several are dropped at once, as choosing them goes through all.
        """
        if self.refused_connections:
            many = 1 + len(self.refused_connections) // AT_ONCE
            for stream in self.refused_connections[:many]:
                stream.drop()
            del self.refused_connections[:many]
            return True
        counts: dict[str, int] = {}
        for conn in self._strangers:
            counts[self._addresses[conn]] = counts.get(self._addresses[conn], 0) + 1

        def burden(conn: int) -> tuple[bool, int]:
            return not self.streams[conn].wire.has_begun, counts[self._addresses[conn]]

        # The sort is stable: of equal ones the oldest is dropped first.
        order = sorted(self._strangers, key=burden, reverse=True)
        for conn in order[: 1 + len(order) // AT_ONCE]:
            self._forget(conn).drop()
        return bool(counts)

    def _pause(self, error: OSError) -> None:
        """Stop accepting for PAUSE_S, where this process can have no further connection."""
        why, name = error.strerror, errno.errorcode[error.errno or 0]
        self._once(
            f"no connection can be taken for now: {why} ({name}); to have more open files, run "
            "ulimit -n 65536 before the launch; said once",
            key=why,
        )
        if self._listener and not self._evict_strangers():
            self._is_paused = True
            self._loop.forget(self._listener.fileno())
            self._loop.alarm(self._go_on, PAUSE_S)

    def _go_on(self) -> None:
        if self._listener and self._is_paused:
            self._is_paused = False
            self._loop.watch(self._listener.fileno(), self._accept)

    def shut(self) -> None:
        """Accept no more connections, and free the port."""
        self._loop.alarm(self._go_on, None)
        if self._listener:
            if not self._is_paused:
                self._loop.forget(self._listener.fileno())
            self._listener.close()
            self._listener = None

    def _once(self, line: str, key: Hashable) -> None:
        """Print a line about strangers once, as thousands of them could cause as many lines."""
        if key not in self._printed and len(self._printed) <= MOST_NOTES:
            self._printed.add(key)
            if len(self._printed) > MOST_NOTES:
                line = "more connections were refused, for other reasons; of these nothing is said"
            self.print_line(line)

    def _report_crowd(self, address: str) -> None:
        line = f"too many connections that send nothing, the last from {address}; said once"
        self._once(line, key=MOST_STRANGERS)

    def _report_stranger(self, conn: int, why: str) -> None:
        line = f"a connection from {self._addresses[conn]} was refused: {why}; said once"
        self._once(line, key=why)

    def _too_slow(self, conn: int) -> None:
        self.streams[conn].turn()  # a Hello may have come that this hub was too slow to read
        if conn in self._strangers:
            self._report_stranger(conn, "it says nothing")
            self._forget(conn).drop()

    def _forget(self, conn: int) -> Connection:
        """Remove a connection from the tables and return it."""
        if conn in self._strangers:
            self._alarms.alarm(self._strangers.pop(conn), None)
        del self._addresses[conn]
        return self.streams.pop(conn)

    def _ended(self, conn: int, end: Ended) -> None:
        stream, is_stranger = self.streams[conn], conn in self._strangers
        if is_stranger and end.is_final:
            stream.refuse(str(end))
        if is_stranger and not end.certain:
            self.refused_connections.append(stream)
        if is_stranger and end.certain and stream.wire.has_begun:
            end = Ended("it went before it had proved itself")
        if is_stranger and not end.certain:
            self._report_stranger(conn, str(end))
        self._forget(conn)
        if not is_stranger:
            self.hub.disconnected(conn, end.certain)

    def _received(self, conn: int, messages: list[Any]) -> None:
        for message in messages:
            if conn not in self.streams:
                return
            if conn not in self._strangers:
                self.hub.received(conn, message)
            elif not isinstance(message, Hello):
                self._report_stranger(conn, "it did not say hello")
                self._forget(conn).drop()
            elif self.members >= MOST_MEMBERS + 2 * self.hub.settings.most_launchers:
                self._report_crowd(self._addresses[conn])
                self._forget(conn).drop()
            else:
                self._alarms.alarm(self._strangers.pop(conn), None)
                address, is_local = self._addresses[conn], message.launcher_id == self._launcher_id
                if is_local or is_loopback(address):  # other machines cannot use that address
                    address = self._endpoint.host
                self.hub.connected(conn, message, address, is_local)

    # What the hub calls

    def _wake(self, after_s: float | None) -> None:
        self._loop.alarm(self.hub.tick, after_s, always=True)

    def send(self, conn: int, message: ToMember) -> None:
        if conn in self.streams:
            self.streams[conn].send(message)

    def dismiss(self, conn: int) -> None:
        if conn in self.streams:
            stream = self._forget(conn)
            stream.close()
            self.refused_connections.append(stream)

    def print_once(self, line: str) -> None:
        self._once(line, key=line)

    def linger(self) -> None:
        self._loop.alarm(self._give_up, LAST_S)

    def _give_up(self) -> None:
        """Drop members that have not read the End, and accept no more launchers."""
        self.shut()
        for conn in list(self.streams):
            self._forget(conn).drop()


def _listen(endpoint: link.Endpoint, addresses: Sequence[lookup.Address]) -> socket.socket:
    """Return a socket that listens at the endpoint's address only, on its first free port.

    The endpoint's name may mean loopback here, as Debian's /etc/hosts has it (cloud-init's by
    IPv6): then the socket listens at all addresses, as other nodes use another one.
    """
    family, (host, _, *rest) = (addresses or endpoint.listen_addresses())[0]
    if is_loopback(str(host)) and not is_loopback(endpoint.host):
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
    sock: socket.socket = machine.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(MOST_WAITING)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock

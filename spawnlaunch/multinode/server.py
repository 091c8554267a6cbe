"""The hub's connections: they check strangers, and pass the Reports of launchers to `hub`."""

from __future__ import annotations

import _socket as socket
import errno
from functools import partial

from spawnlaunch.base import machine
from spawnlaunch.multinode import hub
from spawnlaunch.multinode.stream import LINGER_S, Ended, Stream, tune
from spawnlaunch.multinode.wire import Wire
from spawnlaunch.world.inherited import is_loopback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from typing import Any

    from spawnlaunch.base.events import Loop
    from spawnlaunch.multinode import link
    from spawnlaunch.multinode.messages import Order, Report
    from spawnlaunch.multinode.settings import Settings
    from spawnlaunch.world import lookup

MOST_STRANGERS = 64  # at a time, beside those that are expected
MOST_MEMBERS = 64  # beside twice the expected ones: a returning launcher's old connection may stay
# Connections accepted in one turn of the loop, in which no other connection is read. One turn reads
# a thousand. Of thousands that connect at once, those beyond the kernel's queue find the hub
# seconds later.
MOST_AT_ONCE = 512
AT_ONCE = 100  # one stranger of so many is dropped to make room for others
MOST_SAID = 16  # lines about strangers
MOST_WAITING = 65535  # to be accepted; the kernel has a limit of its own (net.core.somaxconn)
PROVE_S = 10.0  # for a stranger to send its Report
RESTS = 4.0  # times as long as the hub took to decide, before it does so again
PAUSE_S = 0.5  # without accepting, where no connection can be accepted
LAST_S = 10.0  # for launchers to read that the launch has ended
# Errors for a lack of this process or this machine (accept(2), epoll_ctl(2)).
LACKING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC})


def most_connections(settings: Settings) -> int:
    """The largest number of connections that a hub has at a time."""
    return MOST_STRANGERS + MOST_MEMBERS + 3 * settings.total


class Server:
    """The hub on its endpoint, with its connections. It calls `tell` with lines for the user."""

    def __init__(
        self,
        loop: Loop,
        endpoint: link.Endpoint,
        settings: Settings,
        who: str,
        tell: Callable[[str], None],
        room: int = 2**20,
        found: Sequence[lookup.Found] = (),
        line_again: Callable[[int, int], str] = lambda *_: "",
        compare: Callable[[Sequence[Report]], None] = lambda _: None,
    ) -> None:
        """Listen on the endpoint, and start the hub. Raises OSError.

        `who`: the unique name of the hub's own launcher. `room`: the most connections, as other
        parts need descriptors, too. `found`: the endpoint's addresses, if they have been looked up.
        `line_again` returns the command line that starts a launcher again, by its node rank and
        workers; `compare` prints where ranks hang.
        """
        self._loop, self._endpoint, self._who, self.tell = loop, endpoint, who, tell
        self._room, self.line_again, self.compare = room, line_again, compare
        self.hub = hub.Hub(settings, self, machine.running_s())
        self.streams: dict[int, Stream] = {}
        self.n_strangers = 0  # of these that have sent no Report yet
        self.leaving: list[Stream] = []  # closed here, and still reading the last messages
        self.said: set[Hashable] = set()  # keys of lines about strangers, each printed once
        self._paused_until, self._has_timeout = 0.0, False  # accepting; and --timeout runs
        self._ended_at: float | None = None
        self._count, self._has_news, self._rest_s = 0, False, 0.0
        self._listener: socket.socket | None = _listen(endpoint, found)
        name = self._listener.getsockname()
        self.port, self.place = name[1], f"{endpoint.host}:{name[1]}"
        # The address by which the hub's own launcher connects.
        self.own_address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(name[0], str(name[0]))
        loop.watch(self._listener.fileno(), self._accept)
        self.look()

    @property
    def n_members(self) -> int:
        return len(self.streams) - self.n_strangers

    @property
    def is_over(self) -> bool:
        """Whether all launchers, and those about to connect, have been told of the end."""
        if self.hub.phase != hub.ENDED or self.n_members:
            return False
        return self._listener is None or self.hub.is_over

    def close(self) -> None:
        """Drop all connections, and stop listening."""
        self.shut()
        for call in (self._reconcile, self._time_out):
            self._loop.alarm(call, None)
        for one in (*self.streams.values(), *self.leaving):
            one.drop()
        self.streams.clear()

    def look(self) -> None:
        """Have the hub decide, once for all that has come in this turn of the loop.

        With thousands of launchers that takes milliseconds: then more turns come between.
        """
        if not self._has_news:
            self._has_news = True
            self._loop.alarm(self._reconcile, self._rest_s)

    def _reconcile(self) -> None:
        self._has_news, now = False, machine.running_s()
        self._tidy(now)
        due = self.hub.reconcile(now)
        self._rest_s = RESTS * (machine.running_s() - now)
        timeout_s = self.hub.settings.timeout_s
        if self.hub.epoch and timeout_s and not self._has_timeout:
            self._has_timeout = True
            self._loop.alarm(self._time_out, timeout_s, always=True)
        wait_s = self._rest_s if self._has_news else max(0.0, due - machine.running_s())
        self._loop.alarm(self._reconcile, wait_s)

    def _time_out(self) -> None:
        self.hub.is_out_of_time = True
        self.look()

    def _tidy(self, now: float) -> None:
        """End connections whose time is over: of strangers, and of those that were told the end."""
        if self._listener and 0.0 < self._paused_until <= now:
            self._paused_until = 0.0
            self._loop.watch(self._listener.fileno(), self._accept)
        if self.n_strangers:
            for conn, one in [*self.streams.items()]:
                if not one.is_member and now >= one.since + PROVE_S:
                    self._too_slow(conn, one)
        for one in self.leaving:
            if now >= one.since + LINGER_S:
                one.drop()
        self.leaving = [one for one in self.leaving if one.is_open]
        if self.hub.phase == hub.ENDED:
            self._ended_at = self._ended_at or now
            if now >= self._ended_at + LAST_S:
                self.shut()
                for conn in list(self.streams):
                    self._forget(conn).drop()

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
        """Take a stranger's new connection, which has PROVE_S for its Report. Raises OSError."""
        most = min(self._room - self.n_members, MOST_STRANGERS + self.hub.settings.total)
        if self.n_strangers + len(self.leaving) >= most:
            self.leaving = [one for one in self.leaving if one.is_open]
        if self.n_strangers + len(self.leaving) >= most:
            self._tell_of_crowd(address)
            if not self._has_evicted():
                sock.close()
                return
        tune(sock, self._endpoint.lost_after_s)
        self._count += 1
        conn, wire = self._count, Wire(self._endpoint.secret, self._endpoint.run, is_hub=True)
        heard, ended = partial(self._heard, conn), partial(self._ended, conn)
        try:
            self.streams[conn] = Stream(self._loop, sock, wire, heard, ended, address=address)
        except OSError:
            sock.close()
            raise
        self.n_strangers += 1

    def _has_evicted(self) -> bool:
        """Drop some strangers to make room: refused ones, else the oldest silent ones.

        A launcher sends as soon as it is connected. All launchers of a launch may connect from one
        address, so no address has a limit of its own. Of thousands several are dropped at once, as
        choosing them goes through all.
        """
        if self.leaving:
            many = 1 + len(self.leaving) // AT_ONCE
            for one in self.leaving[:many]:
                one.drop()
            del self.leaving[:many]
            return True
        strangers = [conn for conn, one in self.streams.items() if not one.is_member]
        # The sort is stable: of equal ones the oldest is dropped first.
        strangers.sort(key=lambda conn: self.streams[conn].wire.has_begun)
        for conn in strangers[: 1 + len(strangers) // AT_ONCE]:
            self._forget(conn).drop()
        return bool(strangers)

    def _pause(self, error: OSError) -> None:
        """Stop accepting for PAUSE_S, where this process can have no further connection."""
        why, name = error.strerror, errno.errorcode[error.errno or 0]
        self._once(
            f"no connection can be taken for now: {why} ({name}); to have more open files, type "
            "ulimit -n 65536 before the launch; said once",
            key=why,
        )
        if self._listener and not self._has_evicted():
            self._paused_until = machine.running_s() + PAUSE_S
            self._loop.forget(self._listener.fileno())

    def shut(self) -> None:
        """Accept no more connections, and free the port."""
        if self._listener:
            if not self._paused_until:
                self._loop.forget(self._listener.fileno())
            self._listener.close()
            self._listener = None

    def _once(self, line: str, key: Hashable) -> None:
        """Print a line about strangers once, as thousands of them could cause as many lines."""
        if key not in self.said and len(self.said) <= MOST_SAID:
            self.said.add(key)
            if len(self.said) > MOST_SAID:
                line = "more connections were refused, for other reasons; of these nothing is said"
            self.tell(line)

    def _tell_of_crowd(self, address: str) -> None:
        line = f"too many connections that send nothing, the last from {address}; said once"
        self._once(line, key=MOST_STRANGERS)

    def _refuse(self, conn: int, why: str) -> None:
        one = self._forget(conn)
        self._once(f"a connection from {one.address} was refused: {why}; said once", key=why)
        one.drop()

    def _too_slow(self, conn: int, one: Stream) -> None:
        one.turn()  # a Report may have come that this hub was too slow to read
        if conn in self.streams and not one.is_member:
            self._refuse(conn, "it says nothing")

    def _forget(self, conn: int) -> Stream:
        """Remove a connection from the tables and return it."""
        one = self.streams.pop(conn)
        self.n_strangers -= not one.is_member
        return one

    def _ended(self, conn: int, end: Ended) -> None:
        one = self._forget(conn)
        if one.is_member:
            self.hub.lose(conn, end.is_certain, machine.running_s())
            self.look()
            return
        if end.is_final:
            one.refuse(str(end))
        if not end.is_certain:
            self.leaving.append(one)
        if end.is_certain and one.wire.has_begun:
            end = Ended("it went before it had proved itself")
        if not end.is_certain:
            line = f"a connection from {one.address} was refused: {end}; said once"
            self._once(line, key=str(end))

    def _heard(self, conn: int, reports: list[Any]) -> None:
        for report in reports:
            one = self.streams.get(conn)
            if one is None:
                return
            if not one.is_member and report is None:
                self._refuse(conn, "it did not report itself")
                return
            if not one.is_member and self.n_members >= MOST_MEMBERS + 2 * self.hub.settings.total:
                self._tell_of_crowd(one.address)
                self._forget(conn).drop()
                return
            self.n_strangers -= not one.is_member
            one.is_member, now = True, machine.running_s()
            self.hub.hear(conn, now)
            if report is None:
                one.say(None)
                continue
            address, is_local = one.address, report.who == self._who
            if is_local or is_loopback(address):  # other machines cannot use that address
                address = self._endpoint.host
            self.hub.take(conn, report, address, is_local, now)
            self.look()

    # What the hub calls

    def say(self, conn: int, order: Order) -> None:
        if conn in self.streams:
            self.streams[conn].say(order)

    def dismiss(self, conn: int) -> None:
        if conn in self.streams:
            one = self._forget(conn)
            one.close()
            self.leaving.append(one)

    def tell_once(self, line: str) -> None:
        self._once(line, key=line)


def _listen(endpoint: link.Endpoint, found: Sequence[lookup.Found]) -> socket.socket:
    """Return a socket that listens at the endpoint's address only, on its first free port.

    The endpoint's name may mean loopback here, as Debian's /etc/hosts has it (cloud-init's by
    IPv6): then the socket listens at all addresses, as other nodes use another one.
    """
    family, (host, _, *rest) = (found or endpoint.own_addresses())[0]
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

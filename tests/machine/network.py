"""A simulated network: TCP between nodes, whose links may be slow or cut; the ports of each node.

What is sent on a link that is cut waits, as TCP sends it again; a connection whose other end has
not answered for TCP_USER_TIMEOUT ends with ETIMEDOUT (tcp(7)). Closing with something unread, or
as a process that is killed, is a reset.
"""

from __future__ import annotations

import errno
import select
import stat
from typing import TYPE_CHECKING, NamedTuple

from tests.machine.descriptors import Description
from tests.machine.errors import refused

if TYPE_CHECKING:
    from tests.machine.kernel import Kernel
    from tests.machine.node import Node
    from tests.machine.process import Process

ROOM = 1 << 18  # bytes that may be under way in one direction
LATENCY_S = 0.0002
FIRST_PORT = 32768


class Asked(NamedTuple):
    """A question to a name server."""

    who: Process
    name: str
    when: float
    until: float  # the answer comes


class Network:
    """All nodes, by address; which links are cut; what is listened on."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.addresses: dict[str, Node] = {}
        self.latency_s: dict[Node, float] = {}
        self.cuts: dict[Node, float] = {}  # nodes without a link, and since when
        self.listeners: dict[tuple[Node, int], Tcp] = {}
        self.connections: list[Tcp] = []
        self.held_back: list[Tcp] = []  # with something that could not be sent; also closed ones
        self.names: dict[str, str] = {}  # the address of each
        self.mute: tuple[int, float] | None = None  # its server is, after so many answers
        self.asked: list[Asked] = []
        self._next_port = FIRST_PORT

    def join(self, node: Node, address: str) -> None:
        self.addresses[address] = node
        self.names[node.name] = address

    def answer(self, who: Process, name: str) -> tuple[float, str | None]:
        """How long a name server needs for this name, and what it says."""
        takes_s, address = (0.0 if name in self.names else 0.01), self.names.get(name)
        if self.mute is not None:
            left, for_s = self.mute
            self.mute = max(left - 1, 0), for_s
            takes_s = 0.0 if left else for_s
        self.asked.append(Asked(who, name, self.kernel.now, self.kernel.now + takes_s))
        return takes_s, address

    def free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def is_cut(self, one: Node, other: Node) -> bool:
        return one is not other and (one in self.cuts or other in self.cuts)

    def delay_s(self, one: Node, other: Node) -> float:
        if one is other:
            return 2e-5
        return LATENCY_S + self.latency_s.get(one, 0.0) + self.latency_s.get(other, 0.0)

    def cut(self, node: Node) -> None:
        """Nothing comes to this node or from it, until it is mended."""
        self.cuts[node] = self.kernel.now
        self.kernel.note(node.name, "is cut off")
        for connection in list(self.connections):
            connection.watch_for_silence()

    def mend(self, node: Node) -> None:
        self.cuts.pop(node, None)
        self.kernel.note(node.name, "is reachable again")
        held_back, self.held_back = self.held_back, []
        for connection in held_back:
            connection.flush()


class Tcp(Description):
    """A TCP socket: listening, connecting or connected."""

    kind = stat.S_IFSOCK

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node, self.kernel = node, node.kernel
        self.port = 0
        self.backlog: list[Tcp] | None = None  # of one that listens
        self.peer: Tcp | None = None
        self.remote: tuple[str, int] | None = None
        self.is_connected = False
        self.failure = 0  # told once, by SO_ERROR or the next call
        self.inbox = bytearray()
        self.has_end = False  # the other end will send no more
        self.is_reset = False
        self.sent_end = False
        self.outbox: list[tuple[str, bytes]] = []  # not there yet: "data", "end", "reset"
        self.unsent = 0  # of these are not under way: the link is cut
        self.under_way = 0
        self.arrives = 0.0  # when what was sent last comes there
        self.user_timeout_s: float | None = None
        self.probes = False

    def events(self) -> int:
        if self.backlog is not None:
            return select.POLLIN if self.backlog else 0
        found = 0
        if self.failure or self.is_reset:
            found |= select.POLLERR | select.POLLHUP | select.POLLIN | select.POLLOUT
        if self.inbox or self.has_end:
            found |= select.POLLIN
        if self.has_end and self.sent_end:
            found |= select.POLLHUP
        if self.is_connected and self.under_way < ROOM:
            found |= select.POLLOUT
        if not self.is_connected and self.remote is None:
            found |= select.POLLOUT | select.POLLHUP
        return found

    # Connecting

    def connect(self, network: Network, address: tuple[str, int]) -> int:
        self.remote, self.port = address, self.port or network.free_port()
        node = network.addresses.get(address[0])
        if address[0].startswith("127."):
            node = self.node
        if node is None:
            return errno.ENETUNREACH
        self._knock(network, node, 0)
        return errno.EINPROGRESS

    def _knock(self, network: Network, node: Node, times: int) -> None:
        """SYN, again and again while nothing comes back."""
        if self.count <= 0:
            return
        if network.is_cut(self.node, node) or node.is_down:
            again_s = min(2.0**times, 30.0)
            self.kernel.at(self.kernel.now + again_s, lambda: self._knock(network, node, times + 1))
            return
        delay_s = network.delay_s(self.node, node)
        self.kernel.at(self.kernel.now + delay_s, lambda: self._at_the_door(network, node, delay_s))

    def _at_the_door(self, network: Network, node: Node, delay_s: float) -> None:
        listener = network.listeners.get((node, self.remote[1]))
        if listener is None or listener.backlog is None:
            self.kernel.at(self.kernel.now + delay_s, lambda: self._fails(errno.ECONNREFUSED))
            return
        if self.count <= 0:
            return
        other = Tcp(node)
        other.port, other.remote = listener.port, (self.node.address, self.port)
        other.is_connected = True
        other.peer, self.peer = self, other
        network.connections += [self, other]
        other.held()
        listener.backlog.append(other)
        listener.touch()
        self.kernel.at(self.kernel.now + delay_s, self._connected)

    def _connected(self) -> None:
        if self.count > 0 and not self.failure:
            self.is_connected = True
            self.touch()

    def _fails(self, number: int) -> None:
        if self.count > 0:
            self.failure = number
            self.is_connected = False
            self.touch()

    # Sending

    @property
    def network(self) -> Network:
        return self.node.network  # type: ignore[no-any-return]

    def send(self, process: Process, data: bytes) -> int:
        if self.failure:
            number, self.failure = self.failure, 0
            raise refused(number)
        if self.is_reset or self.sent_end or not self.is_connected:
            process.broken_pipe()
            raise refused(errno.EPIPE)
        room = ROOM - self.under_way
        if room <= 0:
            raise refused(errno.EAGAIN)
        part = bytes(data[:room])
        self.under_way += len(part)
        self._post("data", part)
        return len(part)

    def _post(self, kind: str, data: bytes = b"") -> None:
        self.outbox.append((kind, data))
        self.unsent += 1
        self.flush()
        if self.unsent:
            self.watch_for_silence()

    def flush(self) -> None:
        """Send what waits, if the link is there."""
        peer = self.peer
        if peer is None:
            self.drop_unsent()
            return
        if self.network.is_cut(self.node, peer.node) or peer.node.is_down:
            self.network.held_back.append(self)
            return
        for _ in range(self.unsent):
            delay_s = self.network.delay_s(self.node, peer.node)
            self.arrives = max(self.arrives, self.kernel.now + delay_s) + 1e-9
            self.kernel.at(self.arrives, self._arrives)
        self.unsent = 0

    def drop_unsent(self) -> None:
        del self.outbox[len(self.outbox) - self.unsent :]
        self.unsent = 0

    def _arrives(self) -> None:
        """The next is there, in the order in which all was sent."""
        peer = self.peer
        if self.network.is_cut(self.node, peer.node):  # it was cut meanwhile: it is sent again
            self.unsent += 1
            self.network.held_back.append(self)
            return
        kind, data = self.outbox.pop(0)
        if kind == "data":
            self.under_way -= len(data)
            self.touch()
            if peer.count <= 0:  # nobody has it any more
                peer.is_gone(self)
                return
            peer.inbox += data
        elif kind == "end":
            peer.has_end = True
        else:
            peer.is_reset, peer.is_connected = True, False
            is_half = peer.has_end  # CLOSE_WAIT (tcp_reset in the kernel's net/ipv4/tcp_input.c)
            peer.failure = peer.failure or (errno.EPIPE if is_half else errno.ECONNRESET)
            peer.drop_unsent()
        peer.touch()

    def is_gone(self, sender: Tcp) -> None:
        """Somebody sends to what is closed: a reset comes back."""
        self._post("reset")

    def watch_for_silence(self) -> None:
        """The other end is out of reach: this one notices when its time is over."""
        peer = self.peer
        if peer is None or self.user_timeout_s is None or self.count <= 0:
            return
        if not (self.network.is_cut(self.node, peer.node) or peer.node.is_down):
            return
        began = self.kernel.now
        wait_s = self.user_timeout_s * (1 + 0.15 * self.kernel.random.random())

        def look() -> None:
            nodes = (self.node, peer.node)
            since = max((self.network.cuts.get(each, 0.0) for each in nodes), default=0.0)
            is_still = self.network.is_cut(*nodes) and since <= began
            if self.count > 0 and (is_still or peer.node.is_down) and not self.failure:
                self.drop_unsent()
                self.is_reset = True
                self._fails(errno.ETIMEDOUT)

        self.kernel.at(began + wait_s, look)

    # Receiving

    def receive(self, most: int) -> bytes:
        if self.inbox:
            data = bytes(self.inbox[:most])
            del self.inbox[:most]
            return data
        if self.failure:
            number, self.failure = self.failure, 0
            raise refused(number)
        if self.has_end or self.is_reset:
            return b""
        raise refused(errno.EAGAIN if self.is_connected else errno.ENOTCONN)

    # The end

    def end(self) -> None:
        """shutdown(2), SHUT_WR"""
        if not self.is_connected:
            raise refused(errno.ENOTCONN)
        if not self.sent_end:
            self.sent_end = True
            self._post("end")

    def closed(self) -> None:
        super().closed()
        network = self.network
        if self.backlog is not None:
            network.listeners.pop((self.node, self.port), None)
            for waiting in self.backlog:
                waiting.release()
            self.backlog = None
        if self in network.connections:
            network.connections.remove(self)
            if self.inbox or self.is_reset:
                self._post("reset")
            elif not self.sent_end:
                self.sent_end = True
                self._post("end")

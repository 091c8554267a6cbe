"""Whatever comes to a hub's port: the launchers beside it meet, and nothing grows without bound.

A hub that listens, and peers that are not of its launch: some do not know the secret, others prove
themselves and then say what no launcher says. Last its real launchers come.
"""

import json
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from spawnlaunch.errors import one_line
from spawnlaunch.failures import Cause
from spawnlaunch.gang import messages, words
from spawnlaunch.gang.link import Endpoint, Link
from spawnlaunch.gang.member import Member
from spawnlaunch.gang.messages import Hello, Start
from spawnlaunch.gang.server import MOST_SAID, Server
from spawnlaunch.gang.settings import Settings
from spawnlaunch.gang.wire import NAME, Foreign, Wire, digest_of, secret_of
from spawnlaunch.node.proc import open_fds
from spawnlaunch.run.events import Loop
from tests.gang.any_message import MOST_SHOWN, any_messages, as_bytes
from tests.support.answers import bounded, plain_line
from tests.support.examples import examples, nightly
from tests.support.patience import PATIENCE_S

RUN = "7"
NODES = 3
MOST_BYTES = 2**23  # that a connection leaves unsent or unread
LINES = MOST_SAID + 8
PROVED, ANOTHER, RAW = "proved", "another token", "raw"
GREETING = f"{NAME} {digest_of(RUN)} {'0' * 32}\n"
LINES_OF_TEXT = [
    *("", " ", "nonsense", "null", "[]", "{}", '{"is": []}', '{"is": {}}', '{"is": "Hello"}'),
    *("[" * 60000, '{"a":' * 12000, "9" * 5000, '{"is": "beat", "number": ' + "9" * 5000 + "}"),
    *('{"is": "beat", "is": "hello"}', '{"is": "\\ud800"}', '{"is": "start"}', "NaN"),
    *('{"is": "beat"}' * 2, '{"is": "beat", "x": ' + "[" * 900 + "]" * 900 + "}"),
    *('{"is": "beat", "x": "' + "x" * length + '"}' for length in (70_000, 1_100_000)),
]
CHUNKS = [
    *(b"", b"\n", b"\n" * 5000, b"\0" * 5000, b"\xff\xfe\n", b"GET / HTTP/1.1\r\n\r\n"),
    *(b"no why\n", b"x" * 5000, b"\x16\x03\x01\x02\x00\n", f"{NAME}\n".encode(), b"spawnlaunch/\n"),
    *(b"spawnlaunch/" + b"9" * 3000 + b" a b\n", b"spawnlaunch/\x1b[2J a b\n"),
    *(GREETING.encode() * 50, GREETING.replace(digest_of(RUN), digest_of("8")).encode()),
    *(GREETING[:-2].encode() + b"\xe9\n", (GREETING + "0" * 64 + "\n{}\n").encode()),
]


class Peer(NamedTuple):
    """What one of them does."""

    kind: str
    lines: list[bytes]  # of a raw one as they are; else what its JSON is
    ends: str  # "stays", "closes" or "resets"
    cut: int  # bytes that are sent at once
    spoils: int = -1  # the line whose MAC is wrong


class Case(NamedTuple):
    """Peers, and whether one of them is taken for a launcher of this gang, and may end it."""

    peers: list[Peer]
    has_member: bool


def is_good_hello(said: Any) -> bool:
    """Whether a launcher begins so."""
    hello = None
    with suppress(messages.Malformed):
        hello = messages.from_json(json.loads(json.dumps(said)), messages.TO_HUB)
    return isinstance(hello, Hello) and hello.version == messages.VERSION and hello.nproc > 0


@st.composite
def peers(draw: DrawFn) -> Peer:
    """One that is no launcher of this gang, whatever it says."""
    kind = draw(st.sampled_from([PROVED, PROVED, ANOTHER, RAW]))
    ends = draw(st.sampled_from(["stays", "stays", "closes", "resets"]))
    cut = draw(st.sampled_from([1, 7, 1000, 65536, 65536]))
    if kind == RAW:
        chunks = st.sampled_from(CHUNKS) | st.binary(max_size=500)
        return Peer(kind, draw(st.lists(chunks, max_size=3)), ends, max(cut, 1000))
    text = st.sampled_from(LINES_OF_TEXT).map(str.encode)
    noise = st.binary(max_size=60).map(lambda data: data.replace(b"\n", b""))
    odd = any_messages().filter(lambda said: not is_good_hello(said)).map(as_bytes)
    said = draw(st.lists(odd | odd | text | noise, max_size=4))
    most = max(map(len, said), default=0)
    return Peer(kind, said, ends, max(cut, most // 50), draw(st.integers(-9, 3)))


@st.composite
def cases(draw: DrawFn) -> Case:
    """A few peers; one of four times one that says a good hello is among them."""
    found = draw(st.lists(peers(), min_size=1, max_size=5))
    has_member = not draw(st.integers(0, 3))
    if has_member:
        hello = Hello(messages.VERSION, "odd", draw(st.uuids()).hex, 1, port=7)._asdict()
        hello |= {
            "rank": draw(st.sampled_from([-1, -1, 1])),
            "leaving": draw(st.sampled_from([0, 15])),
        }
        hello |= {
            "epoch": draw(st.sampled_from([0, 1, 10**9])),
            "nodes": draw(st.sampled_from([0, 2])),
        }
        said = draw(st.lists(any_messages(), min_size=1, max_size=12))
        lines = [as_bytes(each) for each in ({"is": "hello", **hello}, *said)]
        found.insert(draw(st.integers(0, len(found))), Peer(PROVED, lines, "closes", 4096))
    return Case(found, has_member)


class Stranger:
    """One of the peers, with a socket that never waits."""

    def __init__(self, what: Peer, port: int, secret: bytes) -> None:
        self.what = what
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setblocking(False)
        another = secret_of(b"another secret, as long", RUN)
        self.wire = Wire(secret if what.kind == PROVED else another, RUN, is_hub=False)
        self.out = bytearray(b"".join(what.lines) if what.kind == RAW else self.wire.take())
        self.has_said = what.kind == RAW
        self.is_open = True

    def turn(self) -> bool:
        """Send and hear what can be; False: there is nothing left to be done."""
        if not self.is_open:
            return False
        try:
            if self.out:
                del self.out[: self.sock.send(self.out[: self.what.cut])]
            data = self.sock.recv(1 << 16)
            self.is_open = bool(data)
            if self.what.kind != RAW:
                self.wire.feed(data)
                self.out += self.wire.take()
        except BlockingIOError:
            pass
        except (OSError, Foreign):
            self.is_open = False
        if self.wire.is_ready and not self.has_said:
            self.has_said = True
            self.out += b"".join(self.line(n, text) for n, text in enumerate(self.what.lines))
        return self.is_open and (bool(self.out) or not self.has_said)

    def line(self, number: int, text: bytes) -> bytes:
        mac = self.wire.mac(False, number, text)
        return (mac[::-1] if number == self.what.spoils else mac) + b" " + text + b"\n"

    def end(self) -> None:
        if self.what.ends == "resets":
            with suppress(OSError):
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        if self.what.ends != "stays":
            self.sock.close()
            self.is_open = False


class Launcher:
    """What a real one is told."""

    member: Member

    def __init__(self) -> None:
        self.start: Start | None = None
        self.status: int | None = None
        self.lines: list[str] = []

    def launch(self, start: Start) -> None:
        self.start = start

    def halt(self, cause: Cause, grace_s: float) -> None:  # noqa: ARG002
        self.lines.append(cause.in_words)

    def show_stacks(self) -> None: ...

    def await_hub(self, limit_s: float) -> None: ...

    def tell(self, line: str) -> None:
        self.lines.append(line)

    def exit(self, status: int, cause: Cause | None) -> None:
        self.status = status
        self.lines += filter(None, [words.ended("node0", status, cause, has_hub=False)])


class Gang:
    """A hub, and the real launchers, in one loop."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.lines: list[str] = []
        self.secret = secret_of(None, RUN)
        self.server = Server(
            self.loop, Endpoint("127.0.0.1", 0, RUN, self.secret), Settings(NODES, NODES), "who0",
            self.lines.append,
        )  # fmt: skip
        self.launchers: list[Launcher] = []
        self.deadline = time.monotonic() + PATIENCE_S

    def come(self) -> None:
        """Another one comes."""
        number = len(self.launchers)
        here = Endpoint("127.0.0.1", self.server.port, RUN, self.secret)
        hello = Hello(messages.VERSION, f"node{number}", f"who{number}", 1, port=20000 + number)
        self.launchers.append(Launcher())
        self.launchers[-1].member = Link(self.loop, here, hello, 600.0, self.launchers[-1]).member
        self.launchers[-1].member.begin()

    def turn_while(self, condition: Callable[[], bool], what: str) -> None:
        while condition():
            self.loop.turn(0.01)
            assert time.monotonic() < self.deadline, (what, self.server.hub, self.lines)

    def close(self) -> None:
        for launcher in self.launchers:
            launcher.member.link.drop()
        self.server.close()
        for stream in self.server.leaving:
            stream.drop()


def is_met(case: Case) -> None:
    before = len(open_fds())
    gang = Gang()
    gang.come()
    strangers = [Stranger(what, gang.server.port, gang.secret) for what in case.peers]
    quiet = 0
    while quiet < 3:
        have_done = [stranger.turn() for stranger in strangers]
        quiet = 0 if any(have_done) else quiet + 1
        gang.loop.turn(0.002)
        assert time.monotonic() < gang.deadline, "they are not done"
    check_size(gang.server)
    for stranger in strangers:
        stranger.end()
    check_meeting(gang, case.has_member)
    gang.close()
    for stranger in strangers:
        stranger.sock.close()
    # The loop has one; and who has ended hears that others have.
    gang.turn_while(lambda: len(open_fds()) > before + 1, "descriptors are left")


def check_meeting(gang: Gang, has_member: bool) -> None:
    """The other launchers come, and all begin, unless one of them was told to end."""
    hub, launchers = gang.server.hub, gang.launchers
    if has_member:
        gang.turn_while(lambda: gang.server.members > 1 and not gang.server.is_over, "it goes")
    while len(launchers) < NODES:
        gang.come()
    gang.turn_while(
        lambda: any(one.start is None and one.status is None for one in launchers), "they meet"
    )
    if not has_member:
        assert [one.status for one in launchers] == [None] * NODES, (gang.lines, hub)
        assert {one.start.world_size for one in launchers if one.start} == {NODES}
    assert all(0 <= (one.status or 0) <= 255 for one in launchers)
    assert all(one.start is None or is_sane(one.start) for one in launchers)
    assert len(gang.lines) <= LINES, gang.lines
    for line in (*gang.lines, *(line for one in launchers for line in one.lines)):
        plain_line(one_line(line), most=MOST_SHOWN)


def check_size(server: Server) -> None:
    """What the hub keeps of them."""
    for stream in (*server.streams.values(), *server.leaving):
        assert len(stream.waiting) <= MOST_BYTES
        assert len(stream.wire.rest) <= 2**20 + 2**16
    assert len(server.said) <= LINES


def is_sane(start: Start) -> bool:
    return (
        0 <= start.node_rank < start.nnodes <= NODES
        and 0 <= start.first_rank < start.world_size
        and 0 < start.master_port < 65536
        and start.master_addr == "127.0.0.1"
    )


def is_met_within_bounds(case: Case) -> None:
    with bounded():
        is_met(case)


test_launchers_meet_beside_any_peers = examples(20, 300)(given(cases())(is_met_within_bounds))
test_thousands_of_meetings = nightly(given(cases())(is_met_within_bounds), 5000)

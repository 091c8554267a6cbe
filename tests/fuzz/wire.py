"""Whatever comes to a hub's port: the launchers beside it meet, and nothing grows without bound.

A hub that listens, and peers that are not of its launch: some do not know the secret, others prove
themselves and then say what no launcher says. Last its real launchers come.
"""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from spawnlaunch.errors import MOST_CHARS, one_line
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
from tests.fuzz.engine import Subject, once_in, plain_line

RUN = "7"
NODES = 3
PATIENCE_S = 120
MOST_BYTES = 2**23  # that a connection leaves unsent or unread
LINES = MOST_SAID + 8
MOST_SHOWN = 10 * MOST_CHARS + 100  # of a line; each may be an escape
PROVED, ANOTHER, RAW = "proved", "another token", "raw"

if TYPE_CHECKING:
    from collections.abc import Callable

INTS: list[Any] = [
    *(
        -(10**400),
        -(2**63),
        -(2**53),
        -200,
        -65,
        -2,
        -1,
        0,
        1,
        2,
        64,
        65,
        255,
        256,
        65535,
        65536,
        2**31 - 1,
    ),
    *(10**9, 10**15, 2**53 - 1, 2**53, 2**63, 10**400),
]
TEXTS = [
    *("", "a", "node2", "9" * 5000, "node" + "9" * 16000, "x" * 255, "x" * 256, "x" * 20000, "é"),
    *("\0", "a\0b", "\x1b[2J\x1b]0;title\x07", "a\nb", "\r", "\u2028", "\u202e", "\ud800", "%s{0}"),
    *("../../etc", "a b", "-", "\udcff", "\U0010ffff", "\x9b2J", "10.0.0.1", "localhost"),
]
OTHERS: list[Any] = [
    *(None, True, False, 0.5, -0.5, float("nan"), float("inf"), 1e308, 1e12, {}, [], [[]], {"": 1}),
    *([["a", "b", "c"]], [[1, "x"]], [["--grace", "\x1b[2J" * 300]] * 3),
    {"kind": "failure", "rank": 10**15},
]
LONG: list[Any] = [
    *([0] * 65536, [[0, 0]] * 65536, [["--nnodes", "5"]] * 20000, ["x"] * 65537),
    [["--grace", "\x1b[2J" * 3000]] * 3,
]
TEXT = [
    *(
        "",
        " ",
        "nonsense",
        "null",
        "[]",
        "{}",
        '{"is": []}',
        '{"is": {}}',
        '{"is": "Hello"}',
        "NaN",
    ),
    *("[" * 60000, '{"a":' * 12000, "9" * 5000, '{"is": "beat", "number": ' + "9" * 5000 + "}"),
    *(
        '{"is": "beat", "is": "hello"}',
        '{"is": "\\ud800"}',
        '{"is": "start"}',
        '{"is": "beat"}' * 2,
    ),
    '{"is": "beat", "x": ' + "[" * 900 + "]" * 900 + "}",
]
BYTES = [
    *(
        b"",
        b"\n",
        b"\n" * 5000,
        b"\0" * 5000,
        b"\xff\xfe\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"no why\n",
    ),
    *(b"x" * 5000, b"\x16\x03\x01\x02\x00\n", f"{NAME}\n".encode(), b"spawnlaunch/\n"),
    *(b"spawnlaunch/" + b"9" * 3000 + b" a b\n", b"spawnlaunch/\x1b[2J a b\n"),
    f"{NAME} {digest_of('8')} {'0' * 32}\n".encode(),
    f"{NAME} {digest_of(RUN)} {'0' * 31}\xe9\n".encode("latin-1"),
    f"{NAME} {digest_of(RUN)} {'0' * 32}\n{'0' * 64}\n{{}}\n".encode(),
    f"{NAME} {digest_of(RUN)} {'0' * 32}".encode(),
    f"{NAME} {digest_of(RUN)} {'0' * 32}\n".encode() * 50,
]


class Peer(NamedTuple):
    """What one of them does."""

    kind: str
    lines: tuple[bytes, ...]  # of a raw one as they are; else what its JSON is
    ends: str  # "stays", "closes" or "resets"
    cut: int  # bytes that are sent at once
    spoils: int = -1  # the line whose MAC is wrong


class Case(NamedTuple):
    """Peers, and whether the launch has a token."""

    peers: tuple[Peer, ...]
    is_member: bool  # one of them is taken for a launcher of this gang, and may end it


def draw(random: Random) -> Case:
    is_member = once_in(random, 4)
    peers = [peer(random) for _ in range(random.randint(1, 5))]
    if is_member:
        said = tuple(as_bytes(random, message(random)) for _ in range(random.randint(1, 12)))
        valid = Hello(messages.VERSION, "odd", f"{random.random()}", 1, port=7)._asdict()
        valid.update(rank=random.choice([-1, -1, 1]), epoch=random.choice([0, 0, 1, 10**9]))
        valid.update(nodes=random.choice([0, 2, 10**9]), leaving=random.choice([0, 0, 0, 15]))
        hello = as_bytes(random, {"is": "hello", **valid})
        peers.insert(random.randint(0, len(peers)), Peer(PROVED, (hello, *said), "closes", 4096))
    return Case(tuple(peers), is_member)


def peer(random: Random) -> Peer:
    kind = random.choice([PROVED, PROVED, ANOTHER, RAW])
    ends = random.choice(["stays", "stays", "closes", "resets"])
    cut = random.choice([1, 7, 1000, 65536, 65536])
    if kind == RAW:
        chunks = tuple(random.choice(BYTES) for _ in range(random.randint(0, 3)))
        if once_in(random, 4):
            chunks += (random.randbytes(random.randint(0, 500)),)
        return Peer(kind, chunks, ends, max(cut, 1000))
    said = [as_bytes(random, no_hello(random)) for _ in range(random.randint(0, 3))]
    if once_in(random, 4):
        said.append(random.choice(TEXT).encode())
    if once_in(random, 6):
        said.append(random.randbytes(random.randint(0, 60)).replace(b"\n", b""))
    if once_in(random, 8):
        said.append(b'{"is": "beat", "x": "' + b"x" * random.choice([70_000, 1_100_000]) + b'"}')
    most = max(map(len, said), default=0)
    spoils = random.randint(0, 3) if once_in(random, 5) else -1
    return Peer(kind, tuple(said), ends, max(cut, most // 50), spoils)


def no_hello(random: Random) -> dict[str, Any]:
    """A message that no launcher begins with; or a hello that cannot be."""
    while True:
        said = message(random)
        hello = None
        with suppress(messages.Malformed):
            hello = messages.from_json(json.loads(json.dumps(said)), messages.TO_HUB)
        if not isinstance(hello, Hello) or hello.version != messages.VERSION or hello.nproc < 1:
            return said


def message(random: Random) -> dict[str, Any]:
    """One of any kind and direction, in which something is not as it should be."""
    kind = random.choice([Hello, *messages.KINDS.values()])
    said = {"is": kind.__name__.lower()}
    for name, annotation in kind.__annotations__.items():
        said[name] = plain(random, annotation)
    for name in random.sample(sorted(said), random.randint(0, 2)):
        said[name] = anything(random)
    if once_in(random, 5):
        said.pop(random.choice(sorted(said)))
    if once_in(random, 5):
        said[random.choice(TEXTS)] = anything(random)
    return said


def plain(random: Random, annotation: str) -> Any:
    """What stands there now and then; else something extreme of the right kind."""
    if annotation in ("str", "Name"):
        return random.choice(TEXTS) if once_in(random, 3) else "node1"
    if annotation == "bool":
        return once_in(random, 2)
    if annotation in ("float", "Seconds"):
        return random.choice([0.0, 1.0, 1e12, -1.0])
    if annotation.startswith("tuple"):
        return random.choice([[], [[0, 0]], [[2, -9], [10**15, 1]], ["a"], [["--nnodes", "3"]]])
    if annotation.startswith("Cause"):
        return random.choice([None, {"kind": "failure"}, Cause("lost", "x" * 300)._asdict()])
    return random.choice(INTS) if once_in(random, 3) else 1


def anything(random: Random) -> Any:
    if once_in(random, 40):
        return random.choice(LONG)
    return random.choice(random.choice([INTS, TEXTS, OTHERS]))


def as_bytes(random: Random, said: Any) -> bytes:
    return json.dumps(said, ensure_ascii=once_in(random, 2)).encode("utf-8", "surrogatepass")


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
        self.members: list[Member] = []
        self.deadline = time.monotonic() + PATIENCE_S

    def come(self) -> None:
        """Another one comes."""
        number = len(self.members)
        here = Endpoint("127.0.0.1", self.server.port, RUN, self.secret)
        hello = Hello(messages.VERSION, f"node{number}", f"who{number}", 1, port=20000 + number)
        self.launchers.append(Launcher())
        self.members.append(Link(self.loop, here, hello, 600.0, self.launchers[-1]).member)
        self.launchers[-1].member = self.members[-1]
        self.members[-1].begin()

    def turn_while(self, condition: Callable[[], bool], what: str) -> None:
        while condition():
            self.loop.turn(0.01)
            assert time.monotonic() < self.deadline, (what, self.server.hub, self.lines)

    def close(self) -> None:
        for member in self.members:
            member.link.drop()
        self.server.close()
        for stream in self.server.leaving:
            stream.drop()


def judge(case: Case) -> None:
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
    check_meeting(gang, case.is_member)
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
    check_lines(gang.lines, [line for one in launchers for line in one.lines])


def check_size(server: Server) -> None:
    """What the hub keeps of them."""
    for stream in (*server.streams.values(), *server.leaving):
        assert len(stream.waiting) <= MOST_BYTES
        assert len(stream.wire.rest) <= 2**20 + 2**16
    assert len(server.said) <= LINES


def check_lines(ours: list[str], theirs: list[str]) -> None:
    assert len(ours) <= LINES, ours
    for line in (*ours, *theirs):
        plain_line(one_line(line), most=MOST_SHOWN)


def is_sane(start: Start) -> bool:
    return (
        0 <= start.node_rank < start.nnodes <= NODES
        and 0 <= start.first_rank < start.world_size
        and 0 < start.master_port < 65536
        and start.master_addr == "127.0.0.1"
    )


WIRE = Subject(draw, judge)

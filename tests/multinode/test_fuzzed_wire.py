"""Whatever comes to a hub's port: launchers of its run are welcome all the same.

Some peers do not know the secret; others prove themselves, and then say what no launcher says.
"""

import json
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.base.errors import one_line
from spawnlaunch.multinode import messages
from spawnlaunch.multinode.messages import Hello
from spawnlaunch.multinode.server import MOST_NOTES, Server
from spawnlaunch.multinode.wire import NAME, digest_of
from spawnlaunch.node.proc import open_fds
from tests.multinode.any_message import MOST_SHOWN, any_messages, as_bytes
from tests.multinode.peers import prove, read_all
from tests.multinode.test_connections import hub
from tests.support.answers import bounded, plain_line
from tests.support.examples import examples, nightly

Peer = Callable[[socket.socket], bytes]
GREETING = f"{NAME} {digest_of('7')} {'0' * 32} 7\n"
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
    *(GREETING.encode() * 50, GREETING.replace(digest_of("7"), digest_of("8")).encode()),
    *(GREETING[:-2].encode() + b"\xe9\n", (GREETING + "0" * 64 + "\n{}\n").encode()),
]


def is_good_hello(said: Any) -> bool:
    """Whether a launcher begins so."""
    with suppress(messages.Malformed):
        hello = messages.from_json(json.loads(json.dumps(said)), messages.TO_HUB)
        return isinstance(hello, Hello) and hello.nproc > 0
    return False


def peer(is_proved: bool, words: list[bytes], resets: bool) -> Peer:
    """One that says these, as lines if it knows the secret; and goes, or resets the connection."""

    def speaks(sock: socket.socket) -> bytes:
        with suppress(OSError):
            sock.sendall(prove(sock, *words) if is_proved else b"".join(words))
            sock.shutdown(socket.SHUT_WR)
            if not resets:
                return read_all(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        return b""

    return speaks


ODD = any_messages().filter(lambda said: not is_good_hello(said)).map(as_bytes)
TEXT = st.sampled_from(LINES_OF_TEXT).map(str.encode)
NOISE = st.binary(max_size=60).map(lambda data: data.replace(b"\n", b""))
RAW = st.sampled_from(CHUNKS) | st.binary(max_size=500)
PEERS = st.lists(
    st.builds(peer, st.just(True), st.lists(ODD | ODD | TEXT | NOISE, max_size=4), st.booleans())
    | st.builds(peer, st.just(False), st.lists(RAW, max_size=3), st.booleans()),
    min_size=1,
    max_size=5,
)


def is_any_open(server: Server) -> bool:
    """Whether a peer's connection is."""
    return any(stream.is_open for stream in (*server.streams.values(), *server.refused_connections))


def are_no_harm(peers: list[Peer]) -> None:
    before = len(open_fds())
    with bounded(), hub() as one:
        for each in peers:
            one.with_peer(each)
        one.until(lambda: not is_any_open(one.server))
        one.lets_in()
        assert len(one.lines) <= MOST_NOTES + 8
        for line in one.lines:
            plain_line(one_line(line), most=MOST_SHOWN)
    one.until(lambda: len(open_fds()) <= before + 1)  # the loop has one


test_launchers_are_welcome_beside_any_peers = examples(20, 120)(given(PEERS)(are_no_harm))
test_thousands_of_peers = nightly(given(PEERS)(are_no_harm), 5000)

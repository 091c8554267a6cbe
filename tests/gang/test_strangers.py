"""Whoever reaches the hub's port without the secret changes nothing, and is told of once."""

from __future__ import annotations

import hmac
import json
import os
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from spawnlaunch.failures import Cause
from spawnlaunch.gang.hub import Hub
from spawnlaunch.gang.messages import MOST_COUNT, VERSION, Beat, Failed, Hello, Idle, Start
from spawnlaunch.gang.phases import RUNNING
from spawnlaunch.gang.roster import MOST_WORKERS, natural
from spawnlaunch.gang.server import MOST_SAID
from spawnlaunch.gang.settings import Settings
from spawnlaunch.gang.wire import NAME, Foreign, Wire, digest, digest_of, secret_of
from tests.gang.hosts import Calls
from tests.gang.nodes import Nodes
from tests.support.processes import until

SECRET = secret_of(None, "none")
CROWD, STRANGER = "too many connections", "a connection from"  # as lines begin


def address(nodes: Nodes) -> tuple[str, int]:
    host, port = nodes.endpoint.split(":")
    return host, int(port)


def test_names_with_thousands_of_digits_are_ordered_as_any() -> None:
    """Python makes no number of so many (sys.set_int_max_str_digits)."""
    long = "node" + "9" * 5000
    assert sorted([long, "node10", "node2"], key=natural) == ["node2", "node10", long]


def test_strangers_who_renew_their_silence_keep_nobody_out(directory: Path) -> None:
    """Those of the same address, whose first line is missing; and of another, whose second is."""
    nodes = Nodes(directory, least=3, most=3)
    nodes.start("a", "--hub")
    nodes.wait_for("a", "state", state="joined")
    begun = f"{NAME} {digest_of('none')} {'0' * 32}\n".encode()
    is_over = threading.Event()

    def renew() -> None:
        crowd: deque[socket.socket] = deque()
        while not is_over.is_set():
            here = ("127.0.0.1", 0) if len(crowd) % 2 else ("127.0.0.2", 0)
            with suppress(OSError):
                crowd.append(socket.create_connection(address(nodes), 10, here))
                crowd[-1].sendall(b"" if here[0] == "127.0.0.1" else begun)
            if len(crowd) > 500:
                crowd.popleft().close()
        for sock in crowd:
            sock.close()

    with ThreadPoolExecutor(1) as pool:
        renewing = pool.submit(renew)
        try:
            until(lambda: bool(nodes.hub_lines("a", CROWD)), "it says so")
            nodes.start("b")
            nodes.start("c")
            assert nodes.statuses() == {"a": 0, "b": 0, "c": 0}
        finally:
            is_over.set()
        renewing.result()
    assert len(nodes.hub_lines("a", CROWD)) == 1


def test_strangers_are_told_of_in_few_lines_whatever_they_say(directory: Path) -> None:
    nodes = Nodes(directory, least=2, most=2)
    nodes.start("a", "--hub")
    nodes.wait_for("a", "state", state="joined")
    for n in range(3 * MOST_SAID):
        with socket.create_connection(address(nodes)) as sock, suppress(ConnectionError):
            sock.sendall(f"spawnlaunch/{n}x {digest_of('none')} b\n".encode())
            while sock.recv(4096):
                pass
    nodes.start("b")
    assert nodes.statuses() == {"a": 0, "b": 0}
    assert len(nodes.hub_lines("a", STRANGER)) == MOST_SAID
    assert len(nodes.hub_lines("a", "more connections were refused")) == 1


@pytest.mark.parametrize(
    "words",
    [b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01" + os.urandom(200) + b"\n", b"x" * 5000, b"\n" * 50,
     f"{NAME} {digest_of('none')} {'0' * 32}\n{'0' * 64}\n{{}}\n".encode(),
     b"spawnlaunch/999 a b\n"],
    ids=["http", "tls", "long", "empty", "no proof", "version"],
)  # fmt: skip
def test_a_stranger_changes_nothing(directory: Path, words: bytes) -> None:
    nodes = Nodes(directory, least=2, most=2)
    nodes.start("a", "--hub")
    nodes.wait_for("a", "state", state="joined")
    for _ in range(3):
        with socket.create_connection(address(nodes)) as sock, suppress(ConnectionError):
            sock.sendall(words)
            sock.settimeout(30)
            while sock.recv(4096):
                pass
    nodes.start("b")
    assert nodes.statuses() == {"a": 0, "b": 0}
    assert len(nodes.hub_lines("a", STRANGER)) == 1


def test_a_crowd_that_says_nothing_leaves_room(directory: Path) -> None:
    nodes = Nodes(directory, least=2, most=2)
    nodes.start("a", "--hub")
    nodes.wait_for("a", "state", state="joined")
    for _ in range(10_000):
        with suppress(ConnectionError), socket.create_connection(address(nodes)) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    crowd = []
    for _ in range(200):
        with suppress(ConnectionError):
            crowd.append(socket.create_connection(address(nodes)))
    nodes.start("b")
    assert nodes.statuses() == {"a": 0, "b": 0}
    assert len(nodes.hub_lines("a", CROWD)) == 1
    for sock in crowd:
        sock.close()


def shaken() -> tuple[Wire, Wire]:
    """A hub's end and a member's, which have proved themselves."""
    hub, member = Wire(SECRET, "none", is_hub=True), Wire(SECRET, "none", is_hub=False)
    for _ in range(2):
        assert hub.feed(member.take()) == []
        assert member.feed(hub.take()) == []
    assert hub.is_ready
    assert member.is_ready
    return hub, member


def test_messages_arrive_whole_however_they_are_cut() -> None:
    hub, member = shaken()
    hello = Hello(VERSION, "höst", "who", 2, port=1, told=(("--nnodes", "2"),))
    lines = member.encode(hello) + member.encode(Beat(3))
    heard = [message for n in range(len(lines)) for message in hub.feed(lines[n : n + 1])]
    assert heard == [hello, Beat(3)]


def proved(is_hub: bool, has_heard: bool) -> Wire:
    """An end to which the other one has proved itself."""
    hub, member = shaken()
    if has_heard:
        hub.feed(member.encode(Beat(1)))
        member.feed(hub.encode(Beat(1)))
    return hub if is_hub else member


@pytest.mark.parametrize(
    ("end", "most"),
    [
        pytest.param(lambda: Wire(SECRET, "none", is_hub=True), 4096, id="before the proof"),
        pytest.param(lambda: Wire(SECRET, "none", is_hub=False), 4096, id="of a hub before it"),
        pytest.param(lambda: proved(True, False), 2**16, id="the hello"),
        pytest.param(lambda: proved(True, True), 2**20, id="after it"),
        pytest.param(lambda: proved(False, False), 2**20, id="of the hub"),
        pytest.param(lambda: proved(False, True), 2**20, id="of the hub later"),
    ],
)
def test_a_line_has_a_limit_also_where_it_does_not_end(end: Callable[[], Wire], most: int) -> None:
    wire = end()
    assert wire.feed(b"x" * most) == []
    with pytest.raises(Foreign, match="too long"):
        wire.feed(b"x")
    with pytest.raises(Foreign, match="too long"):
        end().feed(b"x" * (most + 1) + b"\n")


@pytest.mark.parametrize(
    ("is_hub", "lines", "why"),
    [
        (True, f"{NAME} {digest_of('7')} {'0' * 32}\n", "another --rdzv-id"),
        (True, f"spawnlaunch/999 {digest_of('none')} {'0' * 32}\n", "another version"),
        (True, f"{NAME} {digest_of('none')} {'0' * 32}\n{'0' * 64}\n", "another token"),
        (False, "no another token\n", "another token"),
        (False, "spawnlaunch/999 of something else\n", "another version"),
        (False, f"{NAME} {'0' * 32} {'0' * 64}\n", "another token"),
    ],
)
def test_what_is_never_heard_says_why(is_hub: bool, lines: str, why: str) -> None:
    with pytest.raises(Foreign) as foreign:
        Wire(SECRET, "none", is_hub).feed(lines.encode())
    assert str(foreign.value).startswith(why)
    assert foreign.value.is_final


@pytest.mark.parametrize("how", ["replayed", "reflected", "reordered", "changed", "of another"])
def test_a_line_is_good_once_and_in_its_place(how: str) -> None:
    hub, member = shaken()
    first, second = member.encode(Beat(1)), member.encode(Beat(2))
    forged = {
        "replayed": first + first,
        "reflected": hub.encode(Beat(1)),
        "reordered": second,
        "changed": first.replace(b":1", b":7"),
        "of another": shaken()[1].encode(Beat(1)),
    }[how]
    with pytest.raises(Foreign, match="cannot have written"):
        hub.feed(forged)


@pytest.mark.parametrize(
    "text",
    ["[]", "{}", '{"is": []}', '{"is": "start"}', '{"is": "beat", "number": 1e400}', "nonsense",
     '{"is": "beat", "number": true}', '{"is": "idle", "epoch": 1, "outcomes": [[1]]}',
     '{"is": "idle", "epoch": 1, "outcomes": {}}', '{"is": "idle", "epoch": 1, "outcomes": 5}',
     json.dumps({"is": "idle", "epoch": 1, "outcomes": [[0, 0]] * (2**16 + 1)}),
     '{"is": "failed", "epoch": 1, "rank": 0, "code": 1, "age_s": NaN}', "[" * 100_000,
     json.dumps({"is": "failed", "epoch": 1, "rank": 0, "code": 1, "words": "x" * 20_000})],
)  # fmt: skip
def test_what_is_no_message_is_not_heard(text: str) -> None:
    hub, member = shaken()
    mac = member.mac(False, 0, text.encode())
    with pytest.raises(Foreign, match=r"none|too long"):
        hub.feed(mac + b" " + text.encode() + b"\n")


@pytest.mark.parametrize(
    ("field", "value"),
    [("host", "a\0b"), ("host", "\x1b[2J"), ("host", "9" * 5000), ("addr", "a\nb"),
     ("who", "\ud800"), ("port", 0), ("port", 10**9), ("rank", -2), ("rank", 10**15),
     ("epoch", 10**9 + 1), ("epoch", 10**15), ("used", -1), ("leaving", -1), ("leaving", 65),
     ("nproc", 10**400), ("launch", "x" * 256)],
)  # fmt: skip
def test_a_hello_that_cannot_be_is_not_heard(field: str, value: object) -> None:
    """What it has would be printed, be in workers' environments, or be counted on."""
    hub, member = shaken()
    hello = Hello(VERSION, "node1", "who", 2, port=29500)._replace(**{field: value})
    with pytest.raises(Foreign, match="a message that is none"):
        hub.feed(member.encode(hello))


def test_the_longest_words_and_lists_are_heard() -> None:
    hub, member = shaken()
    failed = Failed(1, Cause("failure", words="x" * 2**14))
    for message in (failed, Idle(1, 1, ((0, 0),) * 2**16)):
        assert hub.feed(member.encode(message)) == [message]


def test_what_a_hello_does_not_say_is_nothing() -> None:
    """As one of a version without that field says it."""
    hub, member = shaken()
    text = json.dumps({"is": "hello", "version": 1, "host": "a", "who": "b", "nproc": 1}).encode()
    (hello,) = hub.feed(member.mac(False, 0, text) + b" " + text + b"\n")
    assert (hello.rank, hello.last, hello.role) == (-1, -1, "default")
    nothing = hello._asdict().keys() - {"version", "host", "who", "nproc", "rank", "last", "role"}
    assert not any(getattr(hello, name) for name in nothing)


def test_the_most_that_a_hello_may_claim_leads_to_words_that_are_read() -> None:
    hub, member = shaken()
    most = Hello(VERSION, "x" * 255, "w" * 255, MOST_WORKERS, port=65535, epoch=MOST_COUNT,
                 nodes=MOST_COUNT, last=MOST_COUNT, total=MOST_COUNT, used=MOST_COUNT,
                 place=MOST_COUNT, launch="l" * 255)  # fmt: skip
    assert hub.feed(member.encode(most)) == [most]
    calls = Calls()
    rules = Hub(Settings(1, 1, max_restarts=MOST_COUNT + 1), calls, lambda: 1000.0, calls.wake)
    rules.came(1, most, "10.0.0.1")
    assert rules.phase == RUNNING
    said = [message for _, message in calls.calls("say")]
    assert Start in map(type, said)
    assert [member.feed(hub.encode(message)) for message in said] == [[one] for one in said]


@pytest.mark.parametrize("length", [0, 1, 32, 63, 64, 65, 1000])
def test_our_hmac_is_that_of_the_rfc(length: int) -> None:
    for text in (b"", b"text", os.urandom(5000)):
        key = os.urandom(length)
        assert digest(key, text) == hmac.digest(key, text, "sha256")


def test_openssl_is_not_loaded() -> None:
    """It would be a megabyte in every launcher."""
    code = "import sys, spawnlaunch.gang.wire; sys.exit('_hashlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_random_bytes_are_refused_and_never_an_accident() -> None:
    for _ in range(300):
        hub, _ = shaken()
        with pytest.raises(Foreign):
            hub.feed(os.urandom(60) + b"\n")
        fresh = Wire(SECRET, "none", is_hub=True)
        with pytest.raises(Foreign):
            fresh.feed(os.urandom(60) + b"\n")

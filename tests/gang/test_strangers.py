"""Whoever reaches the hub's port without the secret changes nothing, and is told of once."""

from __future__ import annotations

import hmac
import json
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from spawnlaunch.gang.messages import VERSION, Beat, Hello
from spawnlaunch.gang.wire import NAME, Foreign, Wire, digest, digest_of, secret_of
from tests.gang.nodes import Nodes

SECRET = secret_of(None, "none")


def address(nodes: Nodes) -> tuple[str, int]:
    host, port = nodes.endpoint.split(":")
    return host, int(port)


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
    nodes.wait_for("a", "note", kind="awaited")
    for _ in range(3):
        with socket.create_connection(address(nodes)) as sock, suppress(ConnectionError):
            sock.sendall(words)
            sock.settimeout(30)
            while sock.recv(4096):
                pass
    nodes.start("b")
    assert nodes.statuses() == {"a": 0, "b": 0}
    assert len([x for x in nodes.of("a", "hub note") if x["kind"] == "stranger"]) == 1


def test_a_crowd_that_says_nothing_leaves_room(directory: Path) -> None:
    nodes = Nodes(directory, least=2, most=2)
    nodes.start("a", "--hub")
    nodes.wait_for("a", "note", kind="awaited")
    for _ in range(10_000):
        with suppress(ConnectionError), socket.create_connection(address(nodes)) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    crowd = []
    for _ in range(200):
        with suppress(ConnectionError):
            crowd.append(socket.create_connection(address(nodes)))
    nodes.start("b")
    assert nodes.statuses() == {"a": 0, "b": 0}
    assert len([x for x in nodes.of("a", "hub note") if x["kind"] == "crowd"]) == 1
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
    hello = Hello(VERSION, "höst\n", "who", 2, told=(("--nnodes", "2"),))
    lines = member.encode(hello) + member.encode(Beat(3))
    heard = [message for n in range(len(lines)) for message in hub.feed(lines[n : n + 1])]
    assert heard == [hello, Beat(3)]


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
     '{"is": "failed", "epoch": 1, "rank": 0, "code": 1, "age_s": NaN}', "[" * 100_000,
     json.dumps({"is": "failed", "epoch": 1, "rank": 0, "code": 1, "words": "x" * 20_000})],
)  # fmt: skip
def test_what_is_no_message_is_not_heard(text: str) -> None:
    hub, member = shaken()
    mac = member._mac(False, 0, text.encode())
    with pytest.raises(Foreign, match="none"):
        hub.feed(mac + b" " + text.encode() + b"\n")


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

"""Strangers come to the hub of a launch that runs: they change nothing, and are told of once."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from spawnlaunch.gang.messages import VERSION, Hello, Signalled
from spawnlaunch.gang.wire import Foreign, Wire, secret_of
from tests.gang.relay import relay
from tests.support.ports import free_port
from tests.support.processes import until
from tests.support.watching import Launch, launched

TOKEN = "a secret of some length"
ENVIRON = {"SPAWNLAUNCH_TOKEN": TOKEN}
CROWD = 10_000


@contextmanager
def gang(directory: Path) -> Iterator[tuple[int, list[Launch], bytes]]:
    """A launch of two nodes that runs until `directory`/done is there; what the second has said."""
    port = free_port()
    worker = f"touch {directory}/$RANK; until [ -e {directory}/done ]; do sleep 0.05; done"
    flags = ("--nnodes=2", "--max-restarts=1", "--rdzv-id=7", "--master-addr=127.0.0.1")
    with ExitStack() as stack:
        way = stack.enter_context(relay(port))
        launches = []
        for rank, at in enumerate((port, way.port)):
            (directory / f"node{rank}").mkdir()
            launches.append(
                stack.enter_context(
                    launched(
                        *flags, f"--node-rank={rank}", f"--rdzv-endpoint=127.0.0.1:{at}",
                        "--rdzv-backend=c10d", f"--rdzv-conf=is_host={int(rank == 0)}",
                        "--no-python", "sh", "-c", worker,
                        directory=directory / f"node{rank}", environ=ENVIRON,
                    )
                )
            )  # fmt: skip
        until(lambda: all((directory / f"{rank}").exists() for rank in (0, 1)), "both workers")
        yield port, launches, bytes(way.said)


def ends_well(directory: Path, launches: list[Launch]) -> list[str]:
    """What the hub's launcher has said of strangers."""
    (directory / "done").touch()
    assert [launch.status() for launch in launches] == [0, 0]
    assert not [line for line in launches[1].stderr.splitlines() if "connection" in line]
    return [line for line in launches[0].stderr.splitlines() if "connection" in line]


def say(port: int, words: bytes) -> bytes:
    """What is answered, until the connection is closed."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=100) as sock, suppress(OSError):
        sock.sendall(words)
        while data := sock.recv(4096):
            answer += data
    return answer


def strange(port: int, wire: Wire, *messages: Hello | Signalled) -> str:
    """Take part as a member would; the result is why not."""
    with socket.create_connection(("127.0.0.1", port), timeout=100) as sock:
        while not wire.is_ready:
            sock.sendall(wire.take())
            data = sock.recv(4096)
            if not data:
                return "closed"
            try:
                wire.feed(data)
            except Foreign as error:
                return str(error)
        for message in messages:
            sock.sendall(wire.encode(message))
    return "let in"


@pytest.mark.parametrize("token", [None, b"another secret, as long"], ids=["none", "wrong"])
def test_without_the_token_nobody_ends_a_launch(tmp_path: Path, token: bytes | None) -> None:
    hello = Hello(VERSION, "stranger", "stranger", 1, port=1)
    with gang(tmp_path) as (port, launches, _):
        for _ in range(3):
            wire = Wire(secret_of(token, "7"), "7", is_hub=False)
            assert strange(port, wire, hello, Signalled(15)) == "another token"
        assert len(ends_well(tmp_path, launches)) == 1


def test_what_a_member_has_said_is_of_no_use_to_another(tmp_path: Path) -> None:
    """Its words are good on its own connection only."""
    with gang(tmp_path) as (port, launches, said):
        assert said.count(b"\n") >= 3  # name, proof and hello
        for _ in range(3):
            say(port, said)
        assert len(ends_well(tmp_path, launches)) == 1


def test_garbage_and_lines_without_end_are_not_read(tmp_path: Path) -> None:
    with gang(tmp_path) as (port, launches, _):
        for words in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(3000) + b"\n", b"x" * 50_000_000):
            for _ in range(2):
                assert len(say(port, words)) < 1000
        assert 1 <= len(ends_well(tmp_path, launches)) <= 2  # no launcher; a line that is too long


@pytest.mark.full
def test_a_crowd_and_one_who_says_a_byte_now_and_then_are_in_nobodys_way(tmp_path: Path) -> None:
    with gang(tmp_path) as (port, launches, _), ExitStack() as stack:
        slow = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(5)
        ]
        for n in range(CROWD):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            if n % 1000 == 0:
                for sock in slow:
                    with suppress(OSError):
                        sock.send(b"s")
        crowd = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
        said = ends_well(tmp_path, launches)
        for sock in crowd:
            sock.close()
    assert len([line for line in said if "too many connections" in line]) <= 1
    assert len(said) <= 3

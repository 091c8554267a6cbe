"""Strangers come to the hub of a launch that runs: they change nothing, and are told of once."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack, suppress

from spawnlaunch.gang.messages import VERSION, Hello, Signalled
from spawnlaunch.gang.wire import Foreign, Wire, secret_of
from tests.gang.launchers import Launchers
from tests.gang.relay import relay
from tests.support.processes import until

TOKEN = "a secret of some length"
CROWD = 200
HELLO = Hello(VERSION, "stranger", "stranger", 1, port=1)


def say(port: int, words: bytes) -> bytes:
    """What is answered, until the connection is closed."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=100) as sock, suppress(OSError):
        sock.sendall(words)
        while data := sock.recv(4096):
            answer += data
    return answer


def take_part(port: int, wire: Wire) -> str:
    """Try it as a member would, to end the launch; the result is why not."""
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
        sock.sendall(wire.encode(HELLO) + wire.encode(Signalled(15)))
    return "let in"


def test_strangers_end_no_launch(launchers: Launchers) -> None:
    """Without the token or with another, with what a member has said, with garbage, as a crowd."""
    directory, port = launchers.directory, int(launchers.endpoint.rpartition(":")[2])
    worker = f"touch {directory}/$RANK; until [ -e {directory}/done ]; do sleep 0.05; done"
    with relay(port) as way, ExitStack() as crowd:
        for rank in range(2):
            conf = f"is_host={int(rank == 0)}"
            flags = ("--nnodes=2", "--rdzv-id=7", "--max-restarts=1", f"--node-rank={rank}")
            words = (*flags, "--rdzv-conf", conf, "--no-python", "sh", "-c", worker)
            through = way.port if rank else 0
            launchers.start(f"{rank}", *words, through=through, SPAWNLAUNCH_TOKEN=TOKEN)
        until(lambda: all((directory / f"{rank}").exists() for rank in range(2)), "both workers")
        member_said = bytes(way.said)
        assert member_said.count(b"\n") >= 3  # name, proof and hello
        for _ in range(2):
            for token in (None, b"another secret, as long"):
                wire = Wire(secret_of(token, "7"), "7", is_hub=False)
                assert take_part(port, wire) == "another token"
            garbage = os.urandom(3000) + b"\n", b"x" * 50_000_000, b"GET / HTTP/1.1\r\n\r\n"
            for strange in (member_said, *garbage):
                assert len(say(port, strange)) < 1000
        for _ in range(CROWD):
            with suppress(ConnectionError):
                crowd.enter_context(socket.create_connection(("127.0.0.1", port)))
        (directory / "done").touch()
        assert launchers.statuses() == {"0": 0, "1": 0}
    hub, member = (launchers.said(name) for name in "01")
    assert "connection" not in member
    lines = [line for line in hub.splitlines() if "connection" in line]
    assert sum("another token" in line for line in lines) == 1
    assert sum("too many connections" in line for line in lines) == 1
    # The others: no launcher, a line that is too long, it went before it had proved itself.
    assert len({*lines}) == len(lines) <= 5

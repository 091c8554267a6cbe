"""The connections of a hub and of members, over real sockets, in one loop."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from spawnlaunch.failures import Cause
from spawnlaunch.gang.link import Endpoint, Link
from spawnlaunch.gang.messages import VERSION, Hello
from spawnlaunch.gang.phases import ENDED
from spawnlaunch.gang.server import Server
from spawnlaunch.gang.settings import Settings
from spawnlaunch.gang.stream import Connection
from spawnlaunch.gang.wire import NAME, Wire, digest_of, secret_of
from spawnlaunch.run.events import Loop
from spawnlaunch.world import lookup
from tests.gang.hosts import Calls
from tests.support.ports import free_ports

SECRET, ANOTHER = secret_of(None, "7"), secret_of(b"another secret, as long", "7")
HELLO = Hello(VERSION, "node1", "another", 1, port=1)
MOST_TURNS = 3000


class Hasty(Loop):
    """Its alarms come fifty times as soon."""

    def alarm(
        self, call: Callable[[], object], after_s: float | None, always: bool = False
    ) -> None:
        super().alarm(call, after_s and after_s / 50, always)


class Noting(Loop):
    """It tells which alarms it was given, and what it is to watch."""

    def __init__(self) -> None:
        super().__init__()
        self.alarms: list[float | None] = []
        self.watched: set[int] = set()

    def watch(self, fd: int, *more: Any) -> None:
        self.watched.add(fd)
        super().watch(fd, *more)

    def forget(self, fd: int) -> None:
        self.watched.remove(fd)
        super().forget(fd)

    def alarm(
        self, call: Callable[[], object], after_s: float | None, always: bool = False
    ) -> None:
        self.alarms.append(after_s)
        super().alarm(call, after_s, always)


class Hub:
    """A hub that waits for two nodes, and what it has told its user."""

    def __init__(self, host: str = "127.0.0.1", loop: Loop | None = None, **more: Any) -> None:
        self.loop, self.lines = loop or Loop(), []  # type: tuple[Loop, list[str]]
        settings = Settings(least=2, most=3, join_s=more.pop("join_s", 600.0))
        endpoint = Endpoint(host, 0, "7", SECRET)
        self.server = Server(self.loop, endpoint, settings, "who", self.lines.append, **more)

    def until(self, holds: Callable[[], object]) -> None:
        turn_until(self.loop, holds)

    def connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), 60)

    def with_peer(self, peer: Callable[[socket.socket], bytes]) -> bytes:
        """What a peer answers that is connected, and runs beside the hub."""
        with self.connected() as sock, ThreadPoolExecutor(1) as pool:
            answer = pool.submit(peer, sock)
            self.until(answer.done)
            return answer.result()

    def is_reached_at(self, host: str) -> bool:
        try:
            socket.create_connection((host, self.server.port), 60).close()
        except ConnectionRefusedError:
            return False
        return True


def turn_until(loop: Loop, holds: Callable[[], object]) -> None:
    for _ in range(MOST_TURNS):
        if holds():
            return
        loop.turn(0.02)
    raise AssertionError("it never was so")


@contextmanager
def hub(*words: str, **more: Any) -> Iterator[Hub]:
    one = Hub(*words, **more)
    yield one
    one.server.close()


def link(loop: Loop, port: int, secret: bytes = SECRET, ports: int = 1) -> tuple[Link, Calls]:
    """Another launcher's, and what that was told."""
    launcher = Calls()
    endpoint = Endpoint("127.0.0.1", port, "7", secret, ports=ports)
    made = Link(loop, endpoint, HELLO, 1.0, launcher)
    made.member.begin()
    return made, launcher


def read_all(sock: socket.socket) -> bytes:
    """To the end; raises ConnectionError where it is cut short."""
    read = b""
    while data := sock.recv(4096):
        read += data
    return read


def say(*words: bytes) -> Callable[[socket.socket], bytes]:
    """A peer that says these whatever is answered."""

    def peer(sock: socket.socket) -> bytes:
        for each in words:
            sock.sendall(each)
        return read_all(sock)

    return peer


@pytest.mark.parametrize(
    ("host", "address", "is_for_others"),
    [("127.0.0.1", "127.0.0.1", False), ("localhost", "127.0.0.1", False),
     *((host, address, True) for host in ("node7", "8gpu") for address in ("127.0.1.1", "::1"))],
)  # fmt: skip
def test_a_name_that_is_loopback_here_is_reached_by_others(
    host: str, address: str, is_for_others: bool
) -> None:
    with hub(host, found=lookup.numeric(address, 0)) as one:
        assert one.is_reached_at(address)
        assert one.is_reached_at("127.0.0.2") == is_for_others
        link(one.loop, one.server.port)  # which others are told the name of, if it has rank 0
        one.until(lambda: one.server.hub.nodes)
        assert [node.addr for node in one.server.hub.nodes.values()] == [host]


@pytest.mark.parametrize("ports", [1, 3])
@pytest.mark.parametrize("before", [(), ("127.0.0.2", "fe80::1"), ("fe80::1", "127.0.0.2")])
def test_a_hub_is_found_at_any_address_of_its_name(
    before: tuple[str, ...], ports: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hub() as one:
        first = one.server.port - ports + 1
        names = (*before, "127.0.0.1", "127.0.0.3")
        found = [way for name in names for way in lookup.numeric(name, first)]
        monkeypatch.setattr(lookup, "numeric", lambda *_: found)
        link(one.loop, first, ports=ports)
        one.until(lambda: one.server.hub.nodes)


@pytest.mark.parametrize("there", [(), ("127.0.0.2",)])
def test_nobody_is_there_where_all_refuse_that_can_be_reached(
    there: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, told = Loop(), []  # type: tuple[Loop, list[bool]]
    (port,) = free_ports(1)
    found = [way for name in (*there, "fe80::1") for way in lookup.numeric(name, port)]
    for order in (found, found[::-1]):
        monkeypatch.setattr(lookup, "numeric", lambda *_, order=order: order)
        made, _ = link(loop, port)
        monkeypatch.setattr(made.member, "unlinked", lambda _, is_nobody: told.append(is_nobody))
        turn_until(loop, lambda: told)
        assert told.pop() == bool(there)


@pytest.mark.parametrize("how", ["shut", "close"])
def test_the_port_is_free_once_nobody_can_come(how: str) -> None:
    with hub() as one:
        assert one.is_reached_at("127.0.0.1")
        getattr(one.server, how)()
        assert not one.is_reached_at("127.0.0.1")


def test_a_hub_that_nobody_reaches_ends() -> None:
    with hub(join_s=0.1) as one:
        one.until(lambda: one.server.hub.phase == ENDED)
        assert one.server.hub.status == 69


def test_strangers_that_were_refused_and_have_gone_are_no_crowd() -> None:
    with hub() as one:
        for _ in range(100):
            assert one.with_peer(say(b"nonsense\n")) == b""
            one.until(lambda: not any(stream.is_open for stream in one.server.leaving))
        assert ["no launcher" in line for line in one.lines] == [True]


def test_one_that_is_refused_reads_why_though_it_goes_on_talking() -> None:
    with hub() as one:
        words = say(b"spawnlaunch/999 a b\n", bytes(2**20))
        assert one.with_peer(words) == b"no another --rdzv-id\n"


def test_both_ends_of_another_token_say_so() -> None:
    with hub() as one:
        _, launcher = link(one.loop, one.server.port, ANOTHER)
        one.until(lambda: launcher.calls("exit"))
        assert launcher.calls("exit") == [[2, Cause("refused", words="another token")]]
        one.until(lambda: one.lines)
        assert "another token" in one.lines[0]


def test_one_that_cannot_prove_the_token_is_told_so() -> None:
    begun = f"{NAME} {digest_of('7')} {'0' * 32}\n{'0' * 64}\n".encode()
    with hub() as one:
        assert one.with_peer(say(begun)).endswith(b"\nno another token\n")


def test_a_launcher_that_ends_ends_its_connection() -> None:
    """Its hub is not to take it for one that is out of reach."""
    with hub() as one:
        made, launcher = link(one.loop, one.server.port)
        one.until(lambda: one.server.members)
        made.member.told(15)
        one.until(lambda: launcher.calls("exit"))
        one.until(lambda: not one.server.members)


def test_one_that_does_not_hear_the_end_is_left_and_nobody_comes_any_more() -> None:
    wire = Wire(SECRET, "7", is_hub=False)

    def takes_part(sock: socket.socket) -> bytes:
        while not wire.is_ready:
            sock.sendall(wire.take())
            wire.feed(sock.recv(4096))
        sock.sendall(wire.take() + wire.encode(HELLO))
        return read_all(sock)

    with hub(loop=Hasty()) as one:
        one.server.hub.end_unmet(Cause("unable", "node0", code=2))
        assert b'"end"' in one.with_peer(takes_part)
        assert not one.server.members
        assert not one.is_reached_at("127.0.0.1")
        assert one.server.is_over


@pytest.mark.parametrize("ports", [1, 2])
def test_the_hub_is_looked_for_at_its_ports_and_at_no_other(ports: int) -> None:
    port, loop = free_ports(2)[0], Loop()
    with socket.create_server(("127.0.0.1", port + 1)) as neighbour:
        made, launcher = link(loop, port, ports=ports)
        is_reached = lambda: bool(select.select([neighbour], [], [], 0)[0])  # noqa: E731
        turn_until(loop, lambda: is_reached() or launcher.calls("exit"))
        assert is_reached() == (ports == 2)
        made.drop()


def test_a_stream_that_was_dropped_is_not_ended_again() -> None:
    """Nothing of it is waited for."""
    loop, ends = Noting(), socket.socketpair()
    made = Connection(loop, ends[0], Wire(SECRET, "7", True), lambda _: None, lambda _: None)
    made.drop()
    made.close()
    assert set(loop.alarms) <= {None}
    assert not loop.watched
    ends[1].close()

"""The connections of a hub, of members and of strangers, over real sockets, in one loop."""

from __future__ import annotations

import json
import resource
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from spawnlaunch.base.events import Loop
from spawnlaunch.multinode import messages
from spawnlaunch.multinode.link import Endpoint, Link
from spawnlaunch.multinode.messages import Hello
from spawnlaunch.multinode.phases import ENDED
from spawnlaunch.multinode.server import MOST_NOTES, MOST_STRANGERS, PAUSE_S, Server
from spawnlaunch.multinode.settings import Settings
from spawnlaunch.multinode.stream import Connection
from spawnlaunch.multinode.wire import NAME, Wire, digest_of, secret_of
from spawnlaunch.node.proc import open_fds
from spawnlaunch.outcome.failures import Cause
from spawnlaunch.world import lookup
from tests.multinode.hosts import Calls
from tests.multinode.peers import SECRET, prove, read_all, say
from tests.support.launching import ROOT
from tests.support.ports import free_ports
from tests.support.required import require_programs, require_root

ANOTHER = secret_of(b"another secret, as long", "7")
HELLO = Hello("node1", "another", 1, port=1)
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

    def __init__(
        self,
        host: str = "127.0.0.1",
        loop: Loop | None = None,
        run: str = "7",
        ports: Sequence[int] = (0,),
        **more: Any,
    ) -> None:
        self.loop, self.lines = loop or Loop(), []  # type: tuple[Loop, list[str]]
        settings = Settings(least=2, most=3, join_s=more.pop("join_s", 600.0))
        endpoint = Endpoint(host, ports[0], run, secret_of(None, run), ports=len(ports))
        self.server = Server(self.loop, endpoint, settings, "who", self.lines.append, **more)

    def until(self, holds: Callable[[], object]) -> None:
        turn_until(self.loop, holds)

    def connected(self, address: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), 60, (address, 0))

    def lets_in(self) -> None:
        """A launcher of the same run is welcome, as if nobody else had come."""
        made, _ = link(self.loop, self.server.port)
        self.until(lambda: self.server.members)
        made.drop()

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


def is_reached(listener: socket.socket) -> bool:
    return bool(select.select([listener], [], [], 0)[0])


@contextmanager
def hub(*words: str, **more: Any) -> Iterator[Hub]:
    one = Hub(*words, **more)
    yield one
    one.server.close()


def link(
    loop: Loop, port: int, secret: bytes = SECRET, ports: int = 1, run: str = "7"
) -> tuple[Link, Calls]:
    """Another launcher's, and what that was told."""
    launcher = Calls()
    endpoint = Endpoint("127.0.0.1", port, run, secret, ports=ports)
    made = Link(loop, endpoint, HELLO, 1.0, launcher)
    made.member.begin()
    return made, launcher


@pytest.mark.parametrize(
    ("host", "address", "is_for_others"),
    [("127.0.0.1", "127.0.0.1", False), ("localhost", "127.0.0.1", False),
     *((host, address, True) for host in ("node7", "8gpu") for address in ("127.0.1.1", "::1"))],
)  # fmt: skip
def test_a_name_that_is_loopback_here_is_reached_by_others(
    host: str, address: str, is_for_others: bool
) -> None:
    with hub(host, addresses=lookup.numeric(address, 0)) as one:
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


def test_a_hub_that_nobody_reaches_ends_and_one_that_closes_waits_for_no_stranger() -> None:
    with hub(join_s=0.1, loop=Hasty()) as one, one.connected():
        one.until(lambda: one.server.streams)
        one.until(lambda: one.server.hub.phase == ENDED)
        assert one.server.hub.status == 69
        one.server.close()
        assert not one.is_reached_at("127.0.0.1")
        for _ in range(20):
            one.loop.turn(0.02)


NONCE, PROOF = "0" * 32, "0" * 64
BEGUN = f"{NAME} {digest_of('7')} {NONCE} 7\n".encode()
OTHER_RUN = "another --rdzv-id: the launcher has ?, the hub 7; use the same on all"
OTHER_RUN_SAID = f"no {OTHER_RUN}\n".encode()
STRANGE = {
    "http": (b"GET / HTTP/1.0\r\n\r\n", "no launcher", b""),
    "long": (b"x" * 5000, "too long", b""),
    "empty": (b"\n" * 50, "no launcher", b""),
    "no proof": (BEGUN + f"{PROOF}\n{{}}\n".encode(), "another token", b"no another token\n"),
    "run": (b"spawnlaunch/999 a b\n", OTHER_RUN, OTHER_RUN_SAID),
    "talks on": (b"spawnlaunch/999 a b\n" + bytes(2**20), OTHER_RUN, OTHER_RUN_SAID),
}  # fmt: skip


@pytest.mark.parametrize("way", STRANGE)
def test_a_stranger_reads_why_and_changes_nothing_and_is_told_of_once(way: str) -> None:
    words, why, answer = STRANGE[way]
    with hub() as one:
        for _ in range(100 if way == "http" else 3):  # they have gone, and are no crowd
            assert one.with_peer(say(words)).endswith(answer)
            one.until(lambda: not any(stream.is_open for stream in one.server.refused_connections))
        one.lets_in()
        # On a busy machine the hub has said by now for whom it waits.
        (line,) = [line for line in one.lines if "was refused" in line]
        assert line.startswith("a connection from 127.0.0.1 was refused: ")
        assert why in line


def test_strangers_are_told_of_in_few_lines_whatever_they_say() -> None:
    with hub() as one:
        for n in range(3 * MOST_NOTES):
            one.with_peer(say(f"spawnlaunch/{n}x {digest_of('7')} b\n".encode()))
        one.lets_in()
        assert sum("a connection from" in line for line in one.lines) == MOST_NOTES
        assert sum("more connections were refused" in line for line in one.lines) == 1


def test_strangers_who_renew_their_silence_keep_nobody_out() -> None:
    """Those of the same address, whose first line is missing; and of another, whose second is."""
    with hub() as one, ExitStack() as stack:
        for n in range(4 * MOST_STRANGERS):
            sock = stack.enter_context(one.connected("127.0.0.1" if n % 2 else "127.0.0.2"))
            sock.sendall(b"" if n % 2 else BEGUN)
            one.loop.turn(0)
            if n == 2 * MOST_STRANGERS:
                made, launcher = link(one.loop, one.server.port)
        one.until(lambda: one.server.members)
        assert not launcher.calls("exit")
        assert ["too many connections" in line for line in one.lines] == [True]
        made.drop()


def test_a_hub_without_descriptors_says_so_once_and_does_not_spin() -> None:
    loop, before = Noting(), resource.getrlimit(resource.RLIMIT_NOFILE)
    with hub(loop=loop) as one, ExitStack() as stack:
        peers = [stack.enter_context(socket.socket()) for _ in range(4)]
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(open_fds()) + 1, before[1]))
        with suppress(OSError):
            while True:
                stack.enter_context(socket.socket())
        for peer in peers:
            peer.connect(("127.0.0.1", one.server.port))
        one.until(lambda: one.lines)
        assert (loop.watched, loop.alarms[-1]) == (set(), PAUSE_S), "it looks again after a pause"
        one.until(lambda: loop.watched)
        one.until(lambda: not loop.watched)
        (line,) = one.lines
        assert "(EMFILE)" in line
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        one.until(lambda: len(one.server.streams) == len(peers))  # what has waited


def test_strangers_leave_descriptors_for_the_launcher_itself() -> None:
    """Those that say nothing, and those that were refused and do not go."""
    room = 10
    with hub(room=room) as one, ExitStack() as stack:
        before = len(open_fds())
        for n in range(1, 51):
            sock = stack.enter_context(one.connected())
            if n % 2:
                sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
            one.loop.turn(1)
            assert len(open_fds()) - before - n <= room


@pytest.mark.parametrize("ports", [1, 8])
def test_both_ends_of_another_token_say_so(ports: int) -> None:
    """At once, also where the hub is looked for at several ports."""
    with hub() as one:
        _, launcher = link(one.loop, one.server.port, ANOTHER, ports)
        one.until(lambda: launcher.calls("exit"))
        assert launcher.calls("exit") == [[2, Cause("refused", words="another token")]]
        one.until(lambda: one.lines)
        assert "another token" in one.lines[0]


def test_a_launcher_that_ends_ends_its_connection() -> None:
    """Its hub is not to take it for one that is out of reach."""
    with hub() as one:
        made, launcher = link(one.loop, one.server.port)
        one.until(lambda: one.server.members)
        made.member.signalled(15)
        one.until(lambda: launcher.calls("exit"))
        one.until(lambda: not one.server.members)


def test_one_that_does_not_hear_the_end_is_left_and_nobody_comes_any_more() -> None:
    def takes_part(sock: socket.socket) -> bytes:
        sock.sendall(prove(sock, json.dumps(messages.to_json(HELLO)).encode()))
        return read_all(sock)

    with hub(loop=Hasty()) as one, one.connected():  # and a stranger holds up nothing
        one.server.hub.end_unmet(Cause("unable", "node0", code=2))
        assert b'"end"' in one.with_peer(takes_part)
        assert not one.server.members
        assert not one.is_reached_at("127.0.0.1")
        assert one.server.is_over


# A port that was computed may be another's


@pytest.mark.parametrize("ports", [1, 2])
def test_the_hub_is_looked_for_at_its_ports_and_at_no_other(ports: int) -> None:
    port, loop = free_ports(2)[0], Loop()
    with socket.create_server(("127.0.0.1", port + 1)) as neighbour:
        made, launcher = link(loop, port, ports=ports)
        turn_until(loop, lambda: is_reached(neighbour) or launcher.calls("exit"))
        assert is_reached(neighbour) == (ports == 2)
        made.drop()


def test_two_launches_with_the_same_computed_ports_find_their_own_hubs() -> None:
    """The first port is held by one that never answers, the second by the other's hub."""
    ports, loop = free_ports(8), Hasty()
    with socket.create_server(("127.0.0.1", ports[0])), ExitStack() as stack:
        hubs = [stack.enter_context(hub(loop=loop, run=run, ports=ports)) for run in ("7", "8")]
        for run, one in zip(("7", "8"), hubs, strict=True):
            link(loop, ports[0], secret_of(None, run), len(ports), run)
            one.until(lambda one=one: one.server.members)  # type: ignore[misc]
        assert [one.server.port for one in hubs] == [ports[1], ports[2]]


# A network of its own, whose only ephemeral port is the first of the hub's: whoever connects to it
# where nobody listens reaches itself (RFC 9293, simultaneous open).
ALONE = """
set -e
ip link set lo up
echo 20000 20000 >/proc/sys/net/ipv4/ip_local_port_range
exec "$@"
"""
SEEKS = """
import socket
from tests.multinode.test_connections import Loop, is_reached, link, turn_until
with socket.create_server(("127.0.0.1", 20001)) as listener:
    loop = Loop()
    made, launcher = link(loop, 20000, ports=2)
    turn_until(loop, lambda: is_reached(listener) or launcher.calls("exit"))
    assert not launcher.calls("exit"), launcher.calls("exit")
"""


def test_one_that_reaches_itself_has_found_nobody() -> None:
    require_root()
    require_programs("unshare", "ip", package="util-linux iproute2")
    words = ("unshare", "--net", "sh", "-c", ALONE, "sh", sys.executable, "-c", SEEKS)
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_stream_that_was_dropped_is_not_ended_again() -> None:
    """Nothing of it is waited for."""
    loop, ends = Noting(), socket.socketpair()
    made = Connection(loop, ends[0], Wire(SECRET, "7", True), lambda _: None, lambda _: None)
    made.drop()
    made.close()
    assert set(loop.alarms) <= {None}
    assert not loop.watched
    ends[1].close()

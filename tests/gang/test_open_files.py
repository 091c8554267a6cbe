"""The hub has room for the connections of all nodes; workers have the limit that a user has set."""

from __future__ import annotations

import resource
import select
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from spawnlaunch.gang.link import Endpoint
from spawnlaunch.gang.server import Server
from spawnlaunch.gang.settings import Settings
from spawnlaunch.gang.wire import secret_of
from spawnlaunch.node.proc import open_fds
from spawnlaunch.run.events import Loop
from tests.support.ports import free_port
from tests.support.watching import launched

SOFT = 24
HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
SECRET = secret_of(None, "7")


@pytest.mark.parametrize(
    ("nodes", "preload"), [(16, ()), (2, ("--preload=json",))], ids=["many", "preload"]
)
def test_workers_have_the_limit_though_more_nodes_meet_than_it_has_files(
    tmp_path: Path, nodes: int, preload: tuple[str, ...]
) -> None:
    port = free_port()
    script = tmp_path / "limits.py"
    script.write_text(
        "import os, resource\n"
        "os.write(1, b'soft %d\\n' % resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
    )
    with ExitStack() as stack:
        launches = []
        for rank in range(nodes):
            directory = tmp_path / f"{rank}"
            directory.mkdir()
            launches.append(
                stack.enter_context(
                    launched(
                        f"--nnodes={nodes}", f"--node-rank={rank}", "--no-prefix", *preload,
                        f"--rdzv-endpoint=127.0.0.1:{port}", script, directory=directory,
                        preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT, HARD)),
                    )
                )
            )  # fmt: skip
        for launch in launches:
            launch.read_until(1, "soft")
        assert [launch.status() for launch in launches] == [0] * nodes, launches[0].stderr
        assert {launch.output for launch in launches} == {b"soft %d\n" % SOFT}


def test_a_hub_without_descriptors_says_so_once_and_does_not_spin() -> None:
    lines: list[str] = []
    calls = []

    class Counting(Loop):
        def watch(self, fd: int, call: Callable[[], None], events: int = select.POLLIN) -> None:
            super().watch(fd, lambda: (calls.append(1), call()), events)

    loop = Counting()
    server = Server(
        loop, Endpoint("127.0.0.1", 0, "7", SECRET), Settings(least=2, most=2), "who",
        lines.append,
    )  # fmt: skip
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    peers = [socket.socket() for _ in range(4)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(open_fds()) + 1, before[1]))
    filled: list[socket.socket] = []
    try:
        with suppress(OSError):
            while True:
                filled.append(socket.socket())
        for peer in peers:
            peer.connect(("127.0.0.1", server.port))
        until = time.monotonic() + 2
        while time.monotonic() < until:
            loop.turn(0.1)
        assert len(calls) < 50  # a few in a second, where there were thousands
        (line,) = lines
        assert "(EMFILE)" in line
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    before_they_are_taken = len(open_fds())
    while len(open_fds()) < before_they_are_taken + len(peers):  # what has waited
        loop.turn(1)
    server.close()
    for sock in (*peers, *filled):
        sock.close()


def test_strangers_leave_descriptors_for_the_launcher_itself() -> None:
    """Those that say nothing, and those that were refused and do not go."""
    loop, room = Loop(), 10
    server = Server(
        loop, Endpoint("127.0.0.1", 0, "7", SECRET), Settings(least=2, most=2), "who",
        lambda *_: None, room=room,
    )  # fmt: skip
    before = len(open_fds())
    peers = []
    for n in range(50):
        peers.append(socket.create_connection(("127.0.0.1", server.port)))
        if n % 2:
            peers[-1].sendall(b"GET / HTTP/1.0\r\n\r\n")
        loop.turn(1)
        assert len(open_fds()) - before - len(peers) <= room
    server.close()
    for peer in peers:
        peer.close()

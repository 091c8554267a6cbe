"""Name servers that say nothing hold up nobody who was told to end, and leave nothing behind."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from spawnlaunch.world.lookup import Lookup, find
from tests.gang.mute_names import within_mute_names
from tests.support.launching import LAUNCHER
from tests.support.matrix import mostly_full
from tests.support.processes import children, until
from tests.support.required import require_programs, require_root
from tests.support.watching import Launch, launched


@contextmanager
def mute(
    directory: Path, *words: str, within: tuple[str, ...] = LAUNCHER, program: str = "true"
) -> Iterator[Launch]:
    """A launcher whose questions for names are not answered."""
    command = (*within_mute_names(directory), *within)
    environ = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    flags = ("--nnodes=2", *words, "--no-python", program)
    with launched(*flags, directory=directory, environ=environ, command=command) as one:
        yield one


def asks(launch: Launch) -> int:
    """The child of the guard that asks for a name, once it is there."""
    require_programs("unshare", "ip", package="util-linux iproute2")
    found: list[int] = []

    def is_asking() -> bool:
        found[:] = [launch.pid]
        for _ in range(2):
            found[:] = [child for pid in found for child in children(pid)]
        return any(title(pid).startswith(b"spawnlaunch looks up") for pid in found)

    until(is_asking, "a name is asked for")
    return found[0]


def title(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("node_rank", mostly_full([0, 1]))
def test_a_signal_ends_a_launcher_whose_name_server_is_mute(tmp_path: Path, node_rank: int) -> None:
    require_root()
    with mute(tmp_path, f"--node-rank={node_rank}", "--master-addr=nonode") as launch:
        child = asks(launch)
        launch.send(15)
        assert launch.status(within_s=100) == 143  # the question would be given up after 150
        assert launch.all_gone()
        assert not title(child)


@pytest.mark.full
def test_one_who_asks_dies_with_the_guard(tmp_path: Path) -> None:
    require_root()
    with mute(tmp_path, "--node-rank=1", "--master-addr=nonode") as launch:
        asks(launch)
        launch.send(9, launch.guard)
        assert launch.status() == 137
        assert launch.all_gone()


def test_who_asks_for_a_name_has_no_connection_of_ours() -> None:
    """Else it would stay open when this process closes it, and nobody be told."""
    ours, theirs = socket.socketpair()
    with theirs:
        lookup = Lookup(lambda: time.sleep(600))
        ours.close()
        assert theirs.recv(1) == b""
        lookup.end()


def test_an_answer_is_what_getaddrinfo_says() -> None:
    before = children(os.getpid())
    assert Lookup(partial(find, ("127.0.0.1",), 7)).answer() == [[socket.AF_INET, ["127.0.0.1", 7]]]
    with pytest.raises(OSError, match="can be no name"):
        Lookup(partial(find, ("ä" * 70 + ".a",), 7)).answer()
    with pytest.raises(OSError, match="killed"):
        Lookup(lambda: os.kill(os.getpid(), 9)).answer()
    assert children(os.getpid()) == before

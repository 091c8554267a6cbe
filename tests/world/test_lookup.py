"""Addresses of names: as the C library has them, in this process or in a child that answers."""

from __future__ import annotations

import ipaddress
import os
import select
import signal
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.world import lookup

PORT = 29500
LONGEST_S = 60
TOO_LONG = "ä" * 64 + ".example"  # of a part; getaddrinfo raises no OSError


def fails() -> None:
    raise OSError(113, "no route")


def children() -> set[str]:
    """Of this process, ended ones that nobody has waited for included (proc(5))."""
    return {
        pid
        for file in Path("/proc/self/task").glob("*/children")
        for pid in file.read_text().split()
    }


@given(st.ip_addresses())
def test_an_address_stands_for_itself(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    ((family, place),) = lookup.numeric(str(address), PORT)
    assert family == (socket.AF_INET if address.version == 4 else socket.AF_INET6)
    assert (ipaddress.ip_address(place[0]), place[1]) == (address, PORT)


@pytest.mark.parametrize("name", ["localhost", "node.invalid", TOO_LONG, ""])
def test_a_name_has_to_be_asked_for(name: str) -> None:
    assert lookup.numeric(name, PORT) == []


@pytest.mark.parametrize("before", [(), (TOO_LONG,), ("x" * 300, TOO_LONG)])
def test_the_first_name_that_has_an_address_counts(before: tuple[str, ...]) -> None:
    told = socket.getaddrinfo("localhost", PORT, type=socket.SOCK_STREAM)
    expected = [(family, place) for family, *_, place in told]
    assert lookup.find((*before, "localhost", "127.0.0.2"), PORT) == expected


@pytest.mark.parametrize(
    ("names", "why"), [((), "no name"), ((TOO_LONG,), "is not a host name"), (("x" * 300,), ".")]
)
def test_where_no_name_has_an_address_that_is_an_error(names: tuple[str, ...], why: str) -> None:
    with pytest.raises(OSError, match=why):
        lookup.find(names, PORT)


def test_a_child_answers_and_is_gone() -> None:
    before = children()
    asked = lookup.Lookup(lambda: [2, ["127.0.0.1", PORT]])
    assert len(children() - before) == 1
    assert asked.answer() == [2, ["127.0.0.1", PORT]]
    assert children() == before


def test_what_it_could_not_find_is_an_error_here() -> None:
    with pytest.raises(OSError, match="no route") as raised:
        lookup.Lookup(fails).answer()
    assert raised.value.errno == 113


def test_a_child_that_was_killed_has_found_nothing() -> None:
    with pytest.raises(OSError, match="killed"):
        lookup.Lookup(lambda: os.kill(os.getpid(), signal.SIGKILL)).answer()


def test_a_child_holds_nothing_open_that_is_ours() -> None:
    """What we end ends for others, though a name server says nothing."""
    here, there = os.pipe()
    asked = lookup.Lookup(lambda: signal.pause())
    try:
        os.close(there)
        assert select.select([here], [], [], LONGEST_S)[0]
        assert os.read(here, 1) == b""
        assert not select.select([asked.fd], [], [], 0)[0]
    finally:
        asked.end()
        os.close(here)


def test_a_child_ends_with_whoever_has_asked() -> None:
    reading, writing = os.pipe()
    parent = os.fork()
    if parent == 0:
        asked = lookup.Lookup(lambda: signal.pause())
        os.write(writing, f"{children().pop()}".encode())
        select.select([asked.fd], [], [])
    child = int(os.read(reading, 99))
    watched = os.pidfd_open(child)
    try:
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        assert select.select([watched], [], [], LONGEST_S)[0]
    finally:
        signal.pidfd_send_signal(watched, signal.SIGKILL)
        for fd in (reading, writing, watched):
            os.close(fd)

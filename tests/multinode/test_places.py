"""Launchers that do not find each other print where they wait, for whom, until when, and why."""

from __future__ import annotations

import re
import signal

import pytest

from spawnlaunch.multinode import words
from spawnlaunch.world.identity import Gathering
from tests.multinode.launchers import SAY, Launchers, is_listening
from tests.support.matrix import mostly_full
from tests.support.processes import until

STATIC = ("--rdzv-backend=static",)


def gathering(host: str, named_by: str) -> Gathering:
    return Gathering(
        host=host, named_by=named_by, port=29500, ports=8, is_hub=None, node_rank=-1, least=2,
        most=2, spares=0, expected=(), is_restarted_by_manager=False, return_s=0.0,
        is_restarted=False, name="a", master_addr="", master_port=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("host", "named_by", "is_here", "remark"),
    [
        ("localhost", "--rdzv-endpoint", False, "localhost is each machine itself: .*--rdzv-end"),
        ("127.0.1.1", "MASTER_ADDR", False, "127.0.1.1 is each machine itself: .*in MASTER_ADDR"),
        ("::1", "--master-addr", True, "::1 is each machine itself: .* in --master-addr, on all"),
        ("node1", "--master-addr", True, "node1 is this machine: .* the first in --master-addr"),
        ("node1", "--master-addr", False, ""),
        ("localhost", "", True, ""),
    ],
)
def test_a_place_that_other_machines_do_not_mean_is_named(
    host: str, named_by: str, is_here: bool, remark: str
) -> None:
    assert re.match(remark, words.place_remark(gathering(host, named_by), is_here))
    assert bool(remark) == bool(words.place_remark(gathering(host, named_by), is_here))


def end(launchers: Launchers) -> None:
    for process in launchers.processes.values():
        process.send_signal(signal.SIGTERM)
    launchers.statuses()


def test_a_hub_and_a_launcher_with_another_rdzv_id_print_both(launchers: Launchers) -> None:
    """The launcher looks on, as its own hub may come at one of the next ports."""
    flags = ("--nnodes", 2, "--rdzv-id")
    launchers.start("a", *flags, "one", "--node-rank", 0, SAY, backend=STATIC)
    until(lambda: launchers.said("a"), "it waits")
    launchers.start("b", *flags, "two", "--node-rank", 1, SAY, backend=STATIC)
    both = "another --rdzv-id: the launcher has two, the hub one; use the same on all"
    for name in "ab":
        until(lambda name=name: both in launchers.said(name), f"{name} prints both")  # type: ignore[misc]
    assert re.search(r"waiting for the hub at 127\.0\.0\.1:\d+-\d+ \(another", launchers.said("b"))
    end(launchers)


def test_without_node_ranks_the_launcher_with_another_rdzv_id_ends(launchers: Launchers) -> None:
    launchers.start("a", "--nnodes", 2, "--rdzv-id", "one", SAY)
    until(lambda: is_listening(launchers.endpoint), "the hub listens")
    launchers.start("b", "--nnodes", 2, "--rdzv-id", "two words", SAY)
    both = "another --rdzv-id: the launcher has two?words, the hub one; use the same on all"
    assert launchers.processes["b"].wait() == 2
    until(lambda: both in launchers.said("a"), "the hub prints both")
    assert both in launchers.said("b")
    end(launchers)


@pytest.mark.parametrize("way", mostly_full(["flag", "variable"]))
def test_a_second_launcher_with_node_rank_0_is_refused(launchers: Launchers, way: str) -> None:
    rank = ("--node-rank", 0) if way == "flag" else ()
    environ = {} if way == "flag" else {"PET_NODE_RANK": "0"}
    launchers.start("a", "--nnodes", 2, *rank, SAY, backend=STATIC, **environ)
    until(lambda: "waiting for node rank 1" in launchers.said("a"), "the first waits")
    launchers.start("b", "--nnodes", 2, *rank, SAY, backend=STATIC, **environ)
    assert launchers.processes["b"].wait() == 2
    said = launchers.said("b")
    assert "both have node rank 0; use another --node-rank on each" in said
    launchers.start("c", "--nnodes", 2, "--node-rank", 1, SAY, backend=STATIC)
    assert launchers.statuses() == {"a": 0, "b": 2, "c": 0}


def test_a_line_that_waits_says_for_whom_where_and_until_when(launchers: Launchers) -> None:
    launchers.start("a", "--nnodes", 2, "--node-rank", 1, SAY, backend=STATIC)
    waits = (
        r"waiting for the hub at 127\.0\.0\.1:\d+-\d+ \(Connection refused; 127\.0\.0\.1 is each "
        r"machine itself: if nodes are several machines, use the address of the first in "
        r"--rdzv-endpoint, on all\), up to \d+ s"
    )
    until(lambda: re.search(waits, launchers.said("a")), "it says where it looks")
    launchers.start("b", "--nnodes", 2, "--node-rank", 0, SAY, backend=STATIC)
    assert launchers.statuses() == {"a": 0, "b": 0}

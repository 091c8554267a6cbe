"""Launchers in network namespaces, whose cables can be cut: needs root and ip(8)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gang.namespaces import Network, may_make_namespaces
from tests.gang.nodes import STARTED, Nodes

LOST_AFTER_S = 3


pytestmark = pytest.mark.skipif(not may_make_namespaces(), reason="needs root and ip netns")


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network("abc")
    try:
        yield network
    finally:
        while STARTED:
            process = STARTED.pop()
            if process.poll() is None:
                process.kill()
                process.wait()
        network.remove()


def started(network: Network, directory: Path, command: str, hosts: str = "abc", **more) -> Nodes:
    """Launchers that have begun the first epoch; a has the hub."""
    size = {"least": 3, "most": 3, **more}
    nodes = Nodes(directory, lost_after_s=LOST_AFTER_S, failure_grace_s=1, **size)
    nodes.endpoint = f"{network.address('a')}:29500"
    for host in hosts:
        flags = ("--hub",) if host == "a" else ()
        nodes.start(host, *flags, command=command, within=network.within(host))
    for host in hosts[: nodes.settings["most"]]:
        nodes.wait_for(host, "launch")
    return nodes


def test_the_master_is_an_address_that_all_reach(network: Network, directory: Path) -> None:
    nodes = started(network, directory, "true")
    assert set(nodes.statuses().values()) == {0}
    assert {nodes.wait_for(host, "launch")["master_addr"] for host in "abc"} == {
        network.address("a")
    }


def test_both_sides_of_a_cut_stop(network: Network, directory: Path) -> None:
    nodes = started(network, directory, "sleep 600")
    network.cut("c")
    assert nodes.statuses() == {"a": 69, "b": 69, "c": 69}
    assert nodes.wait_for("a", "exit")["cause"] == nodes.wait_for("b", "exit")["cause"]
    assert nodes.wait_for("b", "exit")["cause"]["host"] == "c"
    assert nodes.wait_for("c", "exit")["line"] == "the hub was lost"


def test_all_stop_when_the_hub_is_cut_off(network: Network, directory: Path) -> None:
    nodes = started(network, directory, "sleep 600")
    network.cut("a")
    assert nodes.statuses() == {"a": 69, "b": 69, "c": 69}


def test_a_spare_replaces_one_that_is_cut_off(network: Network, directory: Path) -> None:
    command = "[ $EPOCH = 2 ] || sleep 600"
    nodes = started(network, directory, command, most=2, least=2, spares=1, max_restarts=1)
    network.cut("b")
    assert nodes.processes["a"].wait(120) == 0
    assert nodes.processes["c"].wait(120) == 0
    assert nodes.wait_for("c", "launch")["node_rank"] == 1
    stopped = nodes.wait_for("b", "halt")
    assert stopped["kind"] == "lost"
    assert nodes.processes["b"].wait(120) == 69


def test_one_that_was_cut_off_joins_again(network: Network, directory: Path) -> None:
    command = "[ $EPOCH = 1 ] && sleep 600; [ $EPOCH = 2 ] && sleep 600; true"
    nodes = started(
        network, directory, command, least=2, max_restarts=1, return_s=60.0, returns=True
    )
    network.cut("c")
    nodes.wait_for("a", "launch", epoch=2)
    assert nodes.wait_for("b", "launch", epoch=2)["nnodes"] == 2
    network.mend("c")
    assert nodes.statuses() == {"a": 0, "b": 0, "c": 0}
    assert nodes.wait_for("c", "launch", epoch=3)["nnodes"] == 3
    assert nodes.wait_for("c", "launch", epoch=3)["used"] == 1


def test_a_short_cut_does_nothing(network: Network, directory: Path) -> None:
    command = f"until [ -e {directory}/mended ]; do sleep 0.1; done; sleep 1"
    nodes = started(network, directory, command)
    network.cut("b")
    subprocess.run(("sleep", "1"), check=True)
    network.mend("b")
    (directory / "mended").touch()
    assert set(nodes.statuses().values()) == {0}
    assert len(nodes.of("a", "launch")) == 1


def test_a_node_that_was_booted_again_ends_its_fence(network: Network, directory: Path) -> None:
    """Nothing of before runs there: so nobody waits for the grace of ten minutes."""
    command = "[ $EPOCH = 2 ] || exec sleep 600"
    nodes = started(
        network, directory, command, max_restarts=1, return_s=60.0, returns=True, grace_s=600
    )
    network.cut("c")
    nodes.wait_for("a", "hub line", line="c was lost: ending the workers of all nodes")
    nodes.processes["c"].kill()
    nodes.processes["c"].wait()
    network.mend("c")
    nodes.start("c", "--boot", "again", command=command, within=network.within("c"))
    assert nodes.statuses() == {"a": 0, "b": 0, "c": 0}


def test_a_cut_before_all_have_met_is_waited_for_on_both_sides(
    network: Network, directory: Path
) -> None:
    """It lasts longer than --lost-after; the launch begins once it is mended."""
    nodes = Nodes(directory, lost_after_s=LOST_AFTER_S, least=3, most=3, join_s=86400)
    nodes.endpoint = f"{network.address('a')}:29500"
    for host in "ab":
        flags = ("--hub",) if host == "a" else ()
        nodes.start(host, *flags, within=network.within(host))
    nodes.wait_for("b", "state", state="joined")
    network.cut("b")
    nodes.wait_for("b", "line", line="the hub is out of reach: trying again")
    nodes.wait_for("a", "hub line", line="waiting for 2 of 3 nodes")  # b is gone here, too
    nodes.start("c", within=network.within("c"))
    nodes.wait_for("c", "state", state="joined")
    network.mend("b")
    assert nodes.statuses() == {"a": 0, "b": 0, "c": 0}

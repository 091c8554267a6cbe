"""A port that was computed may be another's: the hub takes the next, and who seeks it finds it."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from tests.gang.nodes import ROOT, Nodes
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_ports
from tests.support.required import require_programs, require_root

PORTS = ("--ports", "8")


def of_run(directory: Path, run: str, port: int) -> Nodes:
    (directory / run).mkdir()
    nodes = Nodes(directory / run, least=2, most=2)
    nodes.endpoint = f"127.0.0.1:{port}"
    return nodes


def test_the_hub_takes_the_next_port_and_is_found(directory: Path) -> None:
    """The first port is held by one that never answers."""
    first = free_ports(8)[0]
    with socket.create_server(("127.0.0.1", first)):
        nodes = of_run(directory, "none", first)
        nodes.start("b", *PORTS)
        nodes.start("a", "--hub", *PORTS)
        assert nodes.statuses() == {"a": 0, "b": 0}


def test_two_launches_with_the_same_computed_port(directory: Path) -> None:
    """Each finds its own hub, though the other's answers first."""
    first = free_ports(8)[0]
    both = {run: of_run(directory, run, first) for run in ("one", "two")}
    for run, nodes in both.items():
        nodes.start("a", "--hub", "--run", run, *PORTS)
        nodes.wait_for("a", "state", state="joined")
    for run, nodes in both.items():
        nodes.start("b", "--run", run, *PORTS)
        assert nodes.statuses() == {"a": 0, "b": 0}


def test_another_token_is_said_at_once_all_the_same(directory: Path) -> None:
    nodes = of_run(directory, "none", free_ports(8)[0])
    nodes.start("a", "--hub", *PORTS)
    nodes.wait_for("a", "state", state="joined")
    nodes.start("b", *PORTS, SPAWNLAUNCH_TOKEN="x" * 32)
    assert nodes.processes["b"].wait(PATIENCE_S) == 2
    nodes.start("c", *PORTS)
    assert nodes.statuses() == {"a": 0, "b": 2, "c": 0}


# A network of its own, whose only ephemeral port is the first of the hub's: whoever connects to it
# where nobody listens reaches itself (RFC 9293, simultaneous open).
ALONE = """
set -e
ip link set lo up
echo 20000 20000 >/proc/sys/net/ipv4/ip_local_port_range
exec "$@"
"""
SEEKS = """
import select, socket
from spawnlaunch.gang.link import Endpoint, Link
from spawnlaunch.gang.messages import VERSION, Hello
from spawnlaunch.run.events import Loop
from tests.gang.hosts import Calls
loop, launcher = Loop(), Calls()
listener = socket.create_server(("127.0.0.1", 20001))
link = Link(loop, Endpoint("127.0.0.1", 20000, "7", b"", ports=2), Hello(VERSION, "a", "a", 1),
            5.0, launcher)
link.member.begin()
while not select.select([listener], [], [], 0)[0] and not launcher.calls("exit"):
    loop.turn(0.1)
print("found" if not launcher.calls("exit") else launcher.calls("exit"))
"""


def test_one_that_reaches_itself_has_found_nobody() -> None:
    require_root()
    require_programs("unshare", "ip", package="util-linux iproute2")
    words = ("unshare", "--net", "sh", "-c", ALONE, "sh", sys.executable, "-c", SEEKS)
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "found\n", done.stderr

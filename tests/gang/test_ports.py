"""A port that was computed may be another's: the hub takes the next, and who seeks it finds it."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

from tests.gang.nodes import Nodes, free_port
from tests.support.patience import PATIENCE_S

PORTS = ("--ports", "8")


def room_for_eight() -> int:
    """The first of eight ports that are free now, and no ephemeral ones."""
    while True:
        first = 20000 + free_port() % 9000
        with ExitStack() as stack:
            try:
                for port in range(first, first + 8):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return first


def of_run(directory: Path, run: str, port: int) -> Nodes:
    (directory / run).mkdir()
    nodes = Nodes(directory / run, least=2, most=2)
    nodes.endpoint = f"127.0.0.1:{port}"
    return nodes


def test_the_hub_takes_the_next_port_and_is_found(directory: Path) -> None:
    """The first port is held by one that never answers."""
    first = room_for_eight()
    with socket.create_server(("127.0.0.1", first)):
        nodes = of_run(directory, "none", first)
        nodes.start("b", *PORTS)
        nodes.start("a", "--hub", *PORTS)
        assert nodes.statuses() == {"a": 0, "b": 0}


def test_two_launches_with_the_same_computed_port(directory: Path) -> None:
    """Each finds its own hub, though the other's answers first."""
    first = room_for_eight()
    both = {run: of_run(directory, run, first) for run in ("one", "two")}
    for run, nodes in both.items():
        nodes.start("a", "--hub", "--run", run, *PORTS)
        nodes.wait_for("a", "state", state="joined")
    for run, nodes in both.items():
        nodes.start("b", "--run", run, *PORTS)
        assert nodes.statuses() == {"a": 0, "b": 0}


def test_another_token_is_said_at_once_all_the_same(directory: Path) -> None:
    nodes = of_run(directory, "none", room_for_eight())
    nodes.start("a", "--hub", *PORTS)
    nodes.wait_for("a", "state", state="joined")
    nodes.start("b", *PORTS, SPAWNLAUNCH_TOKEN="x" * 32)
    assert nodes.processes["b"].wait(PATIENCE_S) == 2
    nodes.start("c", *PORTS)
    assert nodes.statuses() == {"a": 0, "b": 2, "c": 0}

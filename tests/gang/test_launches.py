"""Launchers on sockets: real processes that meet, run shell commands as workers, and end."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.gang.nodes import Nodes
from tests.support.patience import PATIENCE_S


def test_uneven_nodes_make_one_world(directory: Path) -> None:
    nodes = Nodes(directory, least=3, most=3)
    nodes.start("node10", "--hub", "--nproc", "3")
    nodes.start("node9", "--nproc", "1")
    nodes.start("node11", "--nproc", "2")
    assert set(nodes.statuses().values()) == {0}
    starts = {host: nodes.wait_for(host, "launch") for host in nodes.processes}
    assert {host: start["first_rank"] for host, start in starts.items()} == {
        "node9": 0, "node10": 1, "node11": 4,
    }  # fmt: skip
    same = ("world_size", "nnodes", "master_addr", "master_port", "epoch")
    assert len({tuple(start[key] for key in same) for start in starts.values()}) == 1
    assert starts["node9"]["world_size"] == 6


def test_node_ranks_that_are_given_are_kept(directory: Path) -> None:
    nodes = Nodes(directory, least=3, most=3)
    for host, rank in (("a", 2), ("b", 0), ("c", 1)):
        nodes.start(host, "--rank", str(rank), *(["--hub"] if host == "a" else []))
    assert set(nodes.statuses().values()) == {0}
    ranks = {host: nodes.wait_for(host, "launch")["node_rank"] for host in "abc"}
    assert ranks == {"a": 2, "b": 0, "c": 1}


def test_a_failure_ends_all_with_its_status(directory: Path) -> None:
    nodes = Nodes(directory, least=3, most=3)
    for host in "abc":
        command = "sleep 600" if host != "b" else "exit 7"
        nodes.start(host, *(["--hub"] if host == "a" else []), command=command)
    assert nodes.statuses() == {"a": 7, "b": 7, "c": 7}
    causes = [nodes.wait_for(host, "exit")["cause"] for host in "abc"]
    assert causes[0] == causes[1] == causes[2]
    assert (causes[0]["host"], causes[0]["code"]) == ("b", 7)


def test_all_start_again_with_another_port(directory: Path) -> None:
    nodes = Nodes(directory, least=2, most=2, max_restarts=1)
    nodes.start("a", "--hub", command="[ $EPOCH = 2 ] || sleep 600")
    nodes.start("b", command="[ $EPOCH = 2 ] || exit 3")
    assert set(nodes.statuses().values()) == {0}
    first, second = (nodes.wait_for("a", "launch", count) for count in (1, 2))
    assert (first["total"], second["total"], second["used"]) == (0, 1, 1)
    assert first["node_rank"] == second["node_rank"]
    assert first["master_port"] != second["master_port"]


def test_the_budget_is_of_the_whole_gang(directory: Path) -> None:
    nodes = Nodes(directory, least=2, most=2, max_restarts=2)
    nodes.start("a", "--hub", command="[ $EPOCH = 2 ] && exit 4; sleep 600")
    nodes.start("b", command="[ $EPOCH = 2 ] && sleep 600; exit 3")
    assert nodes.statuses() == {"a": 3, "b": 3}
    assert len(nodes.of("b", "launch")) == 3


def at_work(directory: Path, *commands: str) -> Nodes:
    """Nodes a, which has the hub, and b."""
    nodes = Nodes(directory, least=2, most=2)
    for host, flags, command in zip("ab", (["--hub"], []), commands, strict=True):
        nodes.start(host, *flags, command=command)
    for host in "ab":
        nodes.wait_for(host, "launch")
    return nodes


def test_a_signal_to_one_ends_all(directory: Path) -> None:
    nodes = at_work(directory, "sleep 600", "sleep 600")
    nodes.processes["b"].send_signal(signal.SIGTERM)
    assert nodes.statuses() == {"a": 143, "b": 143}


def test_a_launcher_that_is_killed_is_missed(directory: Path) -> None:
    nodes = at_work(directory, "sleep 600", "exec sleep 15")
    nodes.processes["b"].kill()
    assert nodes.statuses() == {"a": 69, "b": -9}
    cause = nodes.wait_for("a", "exit")["cause"]
    assert (cause["kind"], cause["host"]) == ("lost", "b")


def test_a_hub_that_is_killed_ends_all(directory: Path) -> None:
    nodes = at_work(directory, "exec sleep 15", "sleep 600")
    nodes.processes["a"].kill()
    assert nodes.statuses() == {"a": -9, "b": 69}


def test_a_hub_that_returns_goes_on(directory: Path) -> None:
    nodes = Nodes(
        directory, least=2, most=2, max_restarts=3, return_s=60.0, returns=True, lost_after_s=2
    )
    nodes.settings["failure_grace_s"] = 1
    nodes.settings["grace_s"] = 1
    nodes.start("a", "--hub", command="exec sleep 5")
    nodes.start("b", command="[ $EPOCH = 2 ] || sleep 600")
    nodes.wait_for("b", "launch")
    nodes.processes["a"].kill()
    nodes.processes["a"].wait()
    nodes.start("a", "--hub")
    assert nodes.statuses() == {"a": 0, "b": 0}
    again = nodes.wait_for("a", "launch", 2)
    assert (again["epoch"], again["total"], again["used"]) == (2, 1, 1)


def test_a_spare_takes_the_place_of_one_that_is_lost(directory: Path) -> None:
    nodes = Nodes(directory, least=2, most=2, spares=1, max_restarts=1)
    nodes.start("a", "--hub", command="[ $EPOCH = 2 ] || sleep 600")
    nodes.start("b", command="exec sleep 15")
    nodes.start("c", command="[ $EPOCH = 2 ] || sleep 600")
    nodes.wait_for("b", "launch")
    nodes.wait_for("a", "launch")
    nodes.processes["b"].kill()
    assert nodes.statuses() == {"a": 0, "b": -9, "c": 0}
    assert not [x for x in nodes.of("c", "launch") if x["epoch"] == 1]
    start = nodes.wait_for("c", "launch")
    assert (start["node_rank"], start["nnodes"], start["epoch"]) == (1, 2, 2)


def test_one_that_comes_late_joins(directory: Path) -> None:
    nodes = Nodes(directory, least=2, most=3)
    nodes.start("a", "--hub", command="[ $EPOCH = 2 ] || sleep 600")
    nodes.start("b", command="[ $EPOCH = 2 ] || sleep 600")
    nodes.wait_for("b", "launch")
    nodes.start("c", command="[ $EPOCH = 2 ] || sleep 600")
    assert set(nodes.statuses().values()) == {0}
    assert nodes.wait_for("a", "launch", 2)["nnodes"] == 3
    assert nodes.wait_for("a", "launch", 2)["used"] == 0


def test_one_that_never_comes_is_named(directory: Path) -> None:
    nodes = Nodes(directory, least=3, most=3, join_s=12, expected=["a", "b", "c"])
    nodes.start("a", "--hub")
    nodes.start("c")
    assert nodes.statuses() == {"a": 69, "c": 69}
    nodes.wait_for("c", "line", line="waiting for b")
    nodes.wait_for("a", "hub line", line="waiting for b")
    assert nodes.wait_for("c", "exit")["line"] == "still missing: b"


@pytest.mark.parametrize(
    ("flags", "environ", "said"),
    [
        (("--run", "other"), {}, "another --rdzv-id"),
        ((), {"SPAWNLAUNCH_TOKEN": "x" * 32}, "another token"),
    ],
)
def test_one_that_proves_nothing_is_refused_and_the_others_go_on(
    directory: Path, flags: tuple[str, ...], environ: dict[str, str], said: str
) -> None:
    nodes = Nodes(directory, least=2, most=2, told=[["--nnodes", "2"]])
    nodes.start("a", "--hub", "--told", '{"--nnodes": "2"}')
    nodes.wait_for("a", "state", state="joined")
    nodes.start("b", *flags, **environ)
    assert nodes.processes["b"].wait(PATIENCE_S) == 2
    assert said in nodes.wait_for("b", "exit")["line"]
    nodes.start("c", "--told", '{"--nnodes": "2"}')
    assert nodes.statuses() == {"a": 0, "b": 2, "c": 0}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--told", '{"--nnodes": "3"}'), "b has --nnodes 3, the hub 2; type the same on all"),
        (("--rank", "2"), "b has node rank 2, of 2 nodes"),
        (("--nproc", "0"), "b has 0 workers"),
    ],
)
def test_one_that_is_refused_ends_all(directory: Path, flags: tuple[str, ...], said: str) -> None:
    nodes = Nodes(directory, least=2, most=2, told=[["--nnodes", "2"]])
    nodes.start("a", "--hub", "--told", '{"--nnodes": "2"}')
    nodes.wait_for("a", "state", state="joined")
    nodes.start("b", *flags)
    assert nodes.statuses() == {"a": 2, "b": 2}
    for host in "ab":
        assert said in nodes.wait_for(host, "exit")["line"]


def test_a_token_is_agreed_upon(directory: Path) -> None:
    nodes = Nodes(directory, least=2, most=2)
    path = directory / "token"
    path.write_text("a secret of some length\n")
    nodes.start("a", "--hub", "--token-file", str(path))
    nodes.start("b", SPAWNLAUNCH_TOKEN="a secret of some length")
    assert nodes.statuses() == {"a": 0, "b": 0}

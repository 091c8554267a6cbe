"""Launchers of several nodes, as a user starts them: all on this machine, and on loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.gang.launchers import QUIET, SAY, Launchers, is_listening
from tests.gang.relay import relay
from tests.support.launching import clean_environ, launch
from tests.support.patience import PATIENCE_S
from tests.support.processes import children, until


def test_uneven_nodes_make_one_world_without_node_ranks(launchers: Launchers):
    launchers.start("a", "--nnodes", 3, "--nproc", 2, SAY)
    launchers.start("b", "--nnodes", 3, "--nproc", 1, SAY)
    launchers.start("c", "--nnodes", 3, "--nproc", 1, SAY)
    assert launchers.statuses() == {"a": 0, "b": 0, "c": 0}
    workers = launchers.workers()
    assert sorted(int(one["RANK"]) for one in workers) == [0, 1, 2, 3]
    assert {one["WORLD_SIZE"] for one in workers} == {"4"}
    assert {one["GROUP_WORLD_SIZE"] for one in workers} == {"3"}
    assert sorted({one["NODE_RANK"] for one in workers}) == ["0", "1", "2"]
    assert len({(one["MASTER_ADDR"], one["MASTER_PORT"]) for one in workers}) == 1


def test_node_ranks_that_are_given_are_kept(launchers: Launchers):
    for name, rank in (("a", 1), ("b", 0)):
        launchers.start(name, "--nnodes", 2, "--node-rank", rank, SAY)
    assert launchers.statuses() == {"a": 0, "b": 0}
    (a,), (b,) = launchers.workers("a"), launchers.workers("b")
    assert (a["RANK"], b["RANK"]) == ("1", "0")


def test_a_failure_ends_all_with_its_status_and_one_report(launchers: Launchers):
    launchers.start("a", "--nnodes", 2, "--node-rank", 0, "--nproc", 2, SAY, "wait")
    launchers.start("b", "--nnodes", 2, "--node-rank", 1, SAY, "fail", 7)
    assert launchers.statuses() == {"a": 7, "b": 7}
    said = [launchers.said(name) for name in "ab"]
    assert sum("failed first: rank 2 on" in text for text in said) == 1
    assert sum("exits with status 7, as rank 2 on" in text for text in said) == 1
    report = next(text for text in said if "failed first" in text).partition("last lines of")[2]
    assert ":\nthe worker's last words\n" in report


def test_all_are_started_again_with_one_count_and_another_port(launchers: Launchers):
    flags = ("--nnodes", 2, "--max-restarts", 1)
    launchers.start("a", *flags, SAY, "wait-once")
    launchers.start("b", *flags, SAY, "fail-once", 3)
    assert launchers.statuses() == {"a": 0, "b": 0}
    workers = launchers.workers()
    counts = sorted(one["TORCHELASTIC_RESTART_COUNT"] for one in workers)
    assert counts == ["0", "0", "1", "1"]
    ports = {one["TORCHELASTIC_RESTART_COUNT"]: one["MASTER_PORT"] for one in workers}
    assert ports["0"] != ports["1"]
    said = launchers.said("a") + launchers.said("b")
    assert said.count("restart 1 of 1") == 1


@pytest.mark.parametrize("who", ["a", "b"])
def test_a_signal_to_one_ends_all(launchers: Launchers, who: str):
    for name in "ab":
        launchers.start(name, "--nnodes", 2, SAY, "wait")
    launchers.wait_for_workers(2)
    launchers.processes[who].send_signal(signal.SIGTERM)
    assert launchers.statuses() == {"a": 143, "b": 143}


def test_an_end_that_is_heard_with_the_start_is_not_lost(launchers: Launchers):
    with relay(int(launchers.endpoint.partition(":")[2])) as way:
        places = ("--nnodes", 3, "--lost-after", 1000)
        launchers.start("a", *places, *rendezvous(True), SAY, "wait")
        launchers.start("b", *places, *rendezvous(False), SAY, "wait", through=way.port)
        until(lambda: b"beat" in way.said, "b is welcome")
        way.is_open.clear()
        launchers.start("c", *places, *rendezvous(False), SAY, "wait")
        launchers.wait_for_workers(2, "a", "c")
        launchers.processes["c"].send_signal(signal.SIGTERM)
        (guard,) = children(launchers.processes["a"].pid)
        until(lambda: not children(guard), "all are told to stop")
        way.is_open.set()
        assert launchers.statuses() == {"a": 143, "b": 143, "c": 143}
    assert not launchers.workers("b")


def rendezvous(is_hub: bool) -> tuple[str, str]:
    """Those who wait do not give up."""
    return "--rdzv-conf", f"is_host={int(is_hub)},join_timeout=100000"


def test_a_hub_that_is_told_to_end_before_all_have_met_ends_all(launchers: Launchers):
    """Also one that is on its way then; it would seek the hub for join_timeout."""
    with relay(int(launchers.endpoint.partition(":")[2])) as way:
        way.is_open.clear()
        launchers.start("c", "--nnodes", 3, *rendezvous(False), SAY, "wait", through=way.port)
        way.is_tried.wait(PATIENCE_S)
        launchers.start("a", "--nnodes", 3, *rendezvous(True), SAY, "wait")
        launchers.start("b", "--nnodes", 3, *rendezvous(False), SAY, "wait")
        until(lambda: is_listening(launchers.endpoint), "the hub listens")
        launchers.processes["a"].send_signal(signal.SIGTERM)
        until(
            lambda: "waiting some seconds to tell" in launchers.said("a"), "it waits for the others"
        )
        way.is_open.set()
        assert launchers.statuses() == {"a": 143, "b": 143, "c": 143}
    assert all("got SIGTERM" in launchers.said(name) for name in "abc")


def test_one_that_is_told_to_end_before_it_has_met_the_hub_ends_all(launchers: Launchers):
    with relay(int(launchers.endpoint.partition(":")[2])) as way:
        way.is_open.clear()
        launchers.start("b", "--nnodes", 2, *rendezvous(False), SAY, "wait", through=way.port)
        way.is_tried.wait(PATIENCE_S)
        launchers.start("a", "--nnodes", 2, *rendezvous(True), SAY, "wait")
        until(lambda: is_listening(launchers.endpoint), "the hub listens")
        launchers.processes["b"].send_signal(signal.SIGTERM)
        way.is_open.set()
        assert launchers.statuses() == {"a": 143, "b": 143}


def test_a_second_ctrl_c_does_not_wait_for_those_who_are_near(launchers: Launchers):
    launchers.start("a", "--nnodes", 2, *rendezvous(True), SAY, "wait")
    until(lambda: is_listening(launchers.endpoint), "the hub listens")
    launchers.processes["a"].send_signal(signal.SIGINT)
    until(lambda: "waiting some seconds to tell" in launchers.said("a"), "it waits for the others")
    launchers.processes["a"].send_signal(signal.SIGINT)
    assert launchers.statuses() == {"a": 130}


def test_strangers_do_not_hold_up_the_end(launchers: Launchers):
    """Though one of them is connected at any time."""
    port = int(launchers.endpoint.partition(":")[2])
    launchers.start("a", "--nnodes", 2, *rendezvous(True), SAY, "wait")
    until(lambda: is_listening(launchers.endpoint), "the hub listens")
    launchers.processes["a"].send_signal(signal.SIGTERM)
    strangers: list[socket.socket] = []
    end = time.monotonic() + PATIENCE_S
    while launchers.processes["a"].poll() is None:
        assert time.monotonic() < end
        with suppress(OSError):
            strangers.append(socket.create_connection(("127.0.0.1", port), timeout=1))
        if len(strangers) > 8:
            strangers.pop(0).close()
        time.sleep(0.02)
    for sock in strangers:
        sock.close()
    assert launchers.statuses() == {"a": 143}


def test_a_launcher_that_is_killed_is_lost_and_the_others_end(launchers: Launchers):
    for node_rank, name in enumerate("ab"):
        launchers.start(
            name, "--nnodes", 2, "--node-rank", node_rank, "--rdzv-backend", "static", SAY, "wait"
        )
    launchers.wait_for_workers(2)
    launchers.processes["b"].kill()
    assert launchers.statuses() == {"a": 69, "b": -9}
    assert "was lost" in launchers.said("a")


def test_one_that_comes_late_makes_the_world_larger(launchers: Launchers):
    flags = ("--nnodes", "2:3", "--rdzv-conf", "last_call_timeout=1")
    for name in "ab":
        launchers.start(name, *flags, SAY, "wait-once")
    launchers.wait_for_workers(2)
    launchers.start("c", *flags, SAY, "wait-once")
    assert launchers.statuses() == {"a": 0, "b": 0, "c": 0}
    sizes = sorted(one["WORLD_SIZE"] for one in launchers.workers())
    assert sizes == ["2", "2", "3", "3", "3"]


def test_a_spare_takes_the_place_of_one_that_is_lost(launchers: Launchers):
    flags = ("--nnodes", 2, "--spares", 1, "--max-restarts", 1, "--rdzv-backend", "static")
    for node_rank, name in enumerate("abc"):
        launchers.start(name, *flags, "--node-rank", node_rank, SAY, "wait-once")
    launchers.wait_for_workers(2, "a", "b")
    assert not launchers.workers("c")
    launchers.processes["b"].kill()
    assert launchers.statuses() == {"a": 0, "b": -9, "c": 0}
    (spare,) = launchers.workers("c")
    assert (spare["RANK"], spare["WORLD_SIZE"]) == ("1", "2")
    assert spare["TORCHELASTIC_RESTART_COUNT"] == "1"


def test_a_hang_is_one_only_where_all_nodes_are_silent(launchers: Launchers):
    flags = ("--nnodes", 2, "--hang-timeout", 3, "--on-hang", "kill")
    launchers.start("a", *flags, SAY, "talk", 8)
    launchers.start("b", *flags, SAY, "wait")
    assert launchers.statuses() == {"a": 124, "b": 124}
    talked = (launchers.directory / "a.out").read_text().splitlines()
    assert talked.count("talk") == 8


def test_the_time_of_the_launch_is_over_everywhere(launchers: Launchers):
    for name in "ab":
        launchers.start(name, "--nnodes", 2, "--timeout", 2, SAY, "wait")
    assert launchers.statuses() == {"a": 124, "b": 124}


def test_the_token_is_not_the_workers_and_must_be_the_same(launchers: Launchers):
    token = {"SPAWNLAUNCH_TOKEN": "a secret of some length"}
    flags = ("--nnodes", 2, "--rdzv-backend", "static", "--node-rank")
    launchers.start("a", *flags, 0, SAY, **token)
    launchers.start("b", *flags, 1, SAY, SPAWNLAUNCH_TOKEN="another secret, as long")
    assert launchers.processes["b"].wait(PATIENCE_S) == 2
    assert "another token" in launchers.said("b")
    launchers.start("c", *flags, 1, SAY, **token)
    assert launchers.statuses() == {"a": 0, "b": 2, "c": 0}
    assert not any("SPAWNLAUNCH_TOKEN" in one for one in launchers.workers())


def test_one_result_is_of_all_nodes(launchers: Launchers, tmp_path: Path):
    path = tmp_path / "result.json"
    for name, words in (("a", ("wait",)), ("b", ("fail", 7))):
        launchers.start(name, "--nnodes", 2, "--result", path, SAY, *words)
    assert launchers.statuses() == {"a": 7, "b": 7}
    result = json.loads(path.read_text())
    assert (result["status"], result["cause"]) == (7, "failure")
    assert result["first_failure"] in (0, 1)
    assert [one["rank"] for one in result["ranks"]] == [0, 1]
    failed = result["ranks"][result["first_failure"]]
    assert failed["status"] == 7
    assert not list(tmp_path.glob("result.json.*"))


def test_explain_says_where_they_meet_and_what_is_told_then():
    done = launch("--explain", "--nnodes", "2:4", "--rdzv-endpoint", "node7:29411", SAY)
    assert done.returncode == 0, done.stderr
    assert "the launchers meet at node7:29411" in done.stdout
    assert "told by the hub" in done.stdout


def test_without_a_gang_nobody_waits():
    flags = ("--no-gang", "--nnodes", 2, "--node-rank", 1, "--master-addr", "a")
    assert launch(*flags, SAY, environ=clean_environ(**QUIET)).returncode == 0
    assert os.path.exists(SAY)

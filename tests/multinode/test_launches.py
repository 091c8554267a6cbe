"""Launchers of several nodes, as a user starts them: all on this machine, and on loopback."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from tests.multinode.launchers import QUIET, SAY, Launchers, is_listening
from tests.support.launching import LAUNCHER, clean_environ, launch
from tests.support.patience import PATIENCE_S
from tests.support.processes import until

TOKEN, ANOTHER = "a secret of some length", "another secret, as long"
SOFT = 20  # open files; a hub has more with MANY nodes
MANY = 12


def test_uneven_nodes_make_one_world_and_only_those_that_have_the_token(
    launchers: Launchers, tmp_path: Path
):
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    flags = ("--nnodes", 3, "--nproc")
    launchers.start("a", *flags, 2, "--token-file", tmp_path / "token", SAY)
    until(lambda: is_listening(launchers.endpoint), "the hub listens")
    launchers.start("stranger", *flags, 7, SAY, SPAWNLAUNCH_TOKEN=ANOTHER)
    assert launchers.processes["stranger"].wait(PATIENCE_S) == 2
    assert "another token" in launchers.said("stranger")
    for name in "bc":
        launchers.start(name, *flags, 1, SAY, SPAWNLAUNCH_TOKEN=TOKEN)
    assert launchers.statuses() == {"a": 0, "stranger": 2, "b": 0, "c": 0}
    workers = launchers.workers()
    assert sorted(int(one["RANK"]) for one in workers) == [0, 1, 2, 3]
    assert {one["WORLD_SIZE"] for one in workers} == {"4"}
    assert {one["GROUP_WORLD_SIZE"] for one in workers} == {"3"}
    assert sorted({one["NODE_RANK"] for one in workers}) == ["0", "1", "2"]
    assert len({(one["MASTER_ADDR"], one["MASTER_PORT"]) for one in workers}) == 1
    assert not any("SPAWNLAUNCH_TOKEN" in one for one in workers)


def test_a_failure_ends_all_with_its_status_one_report_and_one_result(
    launchers: Launchers, tmp_path: Path
):
    path = tmp_path / "result.json"
    flags = ("--nnodes", 2, "--result", path, "--node-rank")
    launchers.start("a", *flags, 0, "--nproc", 2, SAY, "wait")
    launchers.start("b", *flags, 1, SAY, "fail", 7)
    assert launchers.statuses() == {"a": 7, "b": 7}
    said = [launchers.said(name) for name in "ab"]
    assert sum("failed first: rank 2 on" in text for text in said) == 1
    assert sum("exits with status 7, as rank 2 on" in text for text in said) == 1
    report = next(text for text in said if "failed first" in text).partition("last lines of")[2]
    assert ":\nthe worker's last words\n" in report
    result = json.loads(path.read_text())
    assert (result["status"], result["cause"], result["first_failure"]) == (7, "failure", 2)
    assert [one["rank"] for one in result["ranks"]] == [0, 1, 2]
    assert result["ranks"][2]["status"] == 7
    assert not list(tmp_path.glob("result.json.*"))


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


def test_one_that_comes_late_makes_the_world_larger(launchers: Launchers):
    flags = ("--nnodes", "2:3", "--rdzv-conf", "last_call_timeout=1")
    for name in "ab":
        launchers.start(name, *flags, SAY, "wait-once")
    launchers.wait_for_workers(2)
    launchers.start("c", *flags, SAY, "wait-once")
    assert launchers.statuses() == {"a": 0, "b": 0, "c": 0}
    sizes = sorted(one["WORLD_SIZE"] for one in launchers.workers())
    assert sizes == ["2", "2", "3", "3", "3"]


# Launchers that are told to end before all have met


def rendezvous(is_hub: bool, *more: object) -> tuple[object, ...]:
    """Those who wait do not give up."""
    conf = f"is_host={int(is_hub)},join_timeout=100000"
    return ("--rdzv-conf", conf, *more, SAY, "wait")


def test_a_second_ctrl_c_does_not_wait_for_those_who_are_near(launchers: Launchers):
    launchers.start("a", *rendezvous(True, "--nnodes", 2))
    until(lambda: is_listening(launchers.endpoint), "the hub listens")
    launchers.processes["a"].send_signal(signal.SIGINT)
    until(lambda: " s to tell " in launchers.said("a"), "it waits for the others")
    launchers.processes["a"].send_signal(signal.SIGINT)
    assert launchers.statuses() == {"a": 130}


# What a launch of several nodes has, and does without


def test_workers_have_the_users_limit_of_files_though_more_nodes_meet(launchers: Launchers):
    """The hub raises its own; one that has a preloaded image too."""
    script = launchers.directory / "limits.py"
    limit = "resource.getrlimit(resource.RLIMIT_NOFILE)[0]"
    script.write_text(f"import os, resource\nos.write(1, b'soft %d\\n' % {limit})\n")
    limited = ("sh", "-c", f'ulimit -S -n {SOFT} && exec "$@"', "sh", *LAUNCHER)
    for rank in range(MANY):
        image = () if rank else ("--preload", "json")
        flags = ("--nnodes", MANY, "--node-rank", rank, "--prefix=never", *image)
        launchers.start(f"{rank}", *flags, script, command=limited)
    assert set(launchers.statuses().values()) == {0}, launchers.said("0")
    outputs = [(launchers.directory / f"{rank}.out").read_text() for rank in range(MANY)]
    assert outputs == [f"soft {SOFT}\n"] * MANY


def test_without_a_gang_nobody_waits():
    flags = ("--no-gang", "--nnodes", 2, "--node-rank", 1, "--master-addr", "a")
    assert launch(*flags, SAY, environ=clean_environ(**QUIET)).returncode == 0

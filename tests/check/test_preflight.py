"""check --all: what it measures in real workers, and how it judges."""

import json
import os
import shlex
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.check import measures
from spawnlaunch.check.verdicts import verdicts
from tests import machines
from tests.check.test_check import told
from tests.machines.tree import node_of
from tests.support.launching import LAUNCHER, run

ALL = ("-m", "spawnlaunch.check", "--all")
LINES = {
    *("versions", "matrix product", "memory", "all-reduce", "network", "host names", "rank 0"),
    *("disk", "clocks", "limits", "site"),
}


SITE = {"files": 65536, "backlog": 4096, "ports": 28232, "free_ports": 36280,
        "processes": 1 << 22, "kill_wait_s": 30, "ends_all": True}  # fmt: skip


def rank(number: int, **other: Any) -> dict[str, Any]:
    """What a rank of a healthy node measures, but for `other`."""
    return {
        "rank": number, "host": "node1", "versions": {"torch": "2.13.0", "python": "3.11.7"},
        "device": "cuda:0", "gflops": 500e3, "gflops_per_thread": 40.0, "others": 0.0,
        "copied_gb_per_s": 3000.0, "rank_0": None,
        "unknown_hosts": [], "disks": {}, "clock_s": 0.0, "sums": {"within the node": 200.0},
        "limits": {"memlock": None, "nofile": 65536, "nproc": None, "shm_free": 1 << 34},
        "hard": {"memlock": None, "nofile": 65536, "nproc": None}, "container": "",
        "shm_size": 1 << 34, "clock_daemon": "",
        "nics": {"all": ["mlx5_0", "mlx5_1"], "near": ["mlx5_0"], "links": ["eth0"],
                 "interfaces": ["lo", "eth0"], "NCCL_IB_HCA": None, "NCCL_SOCKET_IFNAME": None,
                 "GLOO_SOCKET_IFNAME": None, "TP_SOCKET_IFNAME": None},
        "surroundings": {"cpus": 64, "load": 2.0, "quota_cpus": None, "governors": ["performance"],
                         "swap_used": 0, "memory": 1 << 38, "memory_limit": None,
                         "memory_used": None},
        "site": SITE,
        **other,
    }  # fmt: skip


def complaints(**other: Any) -> list[tuple[str, str, str]]:
    """Name, status and message of what is not ok, where rank 2 of 4 is not as the others."""
    found = verdicts([rank(0), rank(1), rank(2, **other), rank(3)])
    assert all(one.remedy for one in found if one.status != "ok")
    return [(one.name, one.status, one.message) for one in found if one.status != "ok"]


def test_nothing_is_said_of_ranks_that_are_alike():
    assert complaints() == []


DISK = {"place": "/scratch", "free_gib": 100.0, "written_mb_per_s": 500.0}


@pytest.mark.parametrize(
    ("other", "name", "status", "words"),
    [
        ({"versions": {"torch": "2.12.0", "python": "3.11.7"}}, "versions", "fail",
         "torch: ranks 0-1,3 2.13.0, rank 2 2.12.0"),
        ({"gflops": 300e3}, "matrix product", "warn", "rank 2 on node1 3e+05"),
        ({"gflops": 50e3}, "matrix product", "fail", "rank 2 on node1 5e+04"),
        ({"copied_gb_per_s": 2000.0}, "memory", "warn", "rank 2 on node1 2e+03"),
        ({"sums": {"within the node": 20.0}, "host": "node2"},
         "all-reduce", "warn", "node2 is slowest"),
        ({"unknown_hosts": ["node9"]}, "host names", "warn", "node1 does not know node9"),
        ({"rank_0": "node1:29500: Connection refused"}, "rank 0", "fail", "Connection refused"),
        ({"clock_s": -3.5, "host": "node2"}, "clocks", "fail", "node2 is 3.5 s behind rank 0's"),
        ({"disks": {"here": {"place": "/no", "error": "No such file"}}},
         "disk", "fail", "here, /no: No such file"),
        ({"disks": {"here": {**DISK, "free_gib": 0.5}}}, "disk", "fail", "0.5 GiB free"),
        ({"disks": {"here": {**DISK, "free_gib": 5.0}}}, "disk", "warn", "5 GiB free"),
        ({"disks": {"here": {**DISK, "written_mb_per_s": 9.0}}}, "disk", "warn", "9 MB/s"),
        ({"limits": {"memlock": 65536, "nofile": 65536, "nproc": None, "shm_free": 1 << 34}},
         "limits", "warn", "locked memory (ulimit -l): 65,536, of rank 2"),
        ({"limits": {"memlock": None, "nofile": 1024, "nproc": None, "shm_free": 1 << 34}},
         "limits", "warn", "open files (ulimit -n): 1,024, of rank 2"),
        ({"limits": {"memlock": None, "nofile": 65536, "nproc": None, "shm_free": 64 << 20}},
         "limits", "fail", "shared memory (/dev/shm): 67,108,864, of rank 2"),
        ({"site": {**SITE, "files": 1024}, "host": "node2"}, "site", "warn",
         "node2: 1,024 open files (ulimit -Hn), for a launcher that all others connect to; a job "
         "of 1,000 nodes needs 1,064"),
        ({"site": {**SITE, "processes": 99}}, "site", "warn", "99 processes and threads"),
        ({"site": {**SITE, "kill_wait_s": 2}}, "site", "warn", "2 s from SIGTERM to SIGKILL"),
        ({"site": {**SITE, "ends_all": False}}, "site", "warn", "the others wait"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_rank_or_node(
    other: Mapping[str, Any], name: str, status: str, words: str
):
    ((said, how, message),) = complaints(**other)
    assert (said, how) == (name, status)
    assert words in message


def test_what_is_not_known_of_a_site_is_not_judged():
    unknown = dict.fromkeys(SITE)
    assert not any(one.name == "site" for one in verdicts([rank(0, site=unknown)]))


LOOK = """
import json, os
from spawnlaunch.check import site
found = site.verdicts([{"rank": 0, "host": "here", "site": site.look(os.environ)}])
print(json.dumps([one for one in found if one.status != "ok"]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="sets limits of a network namespace")
@pytest.mark.parametrize(
    ("spoilt", "words"),
    [
        ("echo 64 > /proc/sys/net/core/somaxconn", "64 connections"),
        ("echo 60000 60999 > /proc/sys/net/ipv4/ip_local_port_range", "1,000 ports for outgoing"),
        ("echo 1024 65535 > /proc/sys/net/ipv4/ip_local_port_range", "0 ports beside these"),
    ],
)
def test_a_remedy_for_a_site_mends_what_it_is_for(spoilt: str, words: str):
    look = shlex.join([sys.executable, "-c", LOOK])
    before = run("unshare", "--net", "sh", "-c", f"{spoilt}; {look}")
    (found,) = json.loads(before.stdout)
    _, _, message, remedy, _ = found
    assert words in message
    after = run("unshare", "--net", "sh", "-c", f"{spoilt}; {remedy} >&2; {look}")
    assert json.loads(after.stdout) == []


def test_a_hard_limit_of_open_files_is_named():
    look = shlex.join([sys.executable, "-c", LOOK])
    (found,) = json.loads(run("sh", "-c", f"ulimit -n 700; {look}").stdout)
    assert found[2].startswith("here: 700 open files (ulimit -Hn)")


def test_the_adapter_next_to_the_device_is_what_nccl_would_choose():
    found = {one.name: one.message for one in verdicts([rank(0)])}
    assert found["network"].endswith("adapters: mlx5_0, mlx5_1; NCCL would choose mlx5_0")


NICS = rank(0)["nics"]


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("NCCL_SOCKET_IFNAME", "ib", "NCCL_SOCKET_IFNAME=ib names others than eth0, lo"),
        ("NCCL_IB_HCA", "=mlx5_7:1,mlx5_8", "names others than mlx5_0, mlx5_1"),
        ("GLOO_SOCKET_IFNAME", "eth0,nope0", "=eth0,nope0 names others than lo, eth0"),
        ("NCCL_IB_HCA", "^mlx5", "NCCL_IB_HCA=^mlx5 names others than mlx5_0, mlx5_1"),
    ],
)
def test_a_variable_that_leaves_nccl_nothing_is_named(variable: str, value: str, words: str):
    ((said, how, message),) = complaints(nics={**NICS, variable: value})
    assert (said, how) == ("network", "fail")
    assert message.startswith("rank 2: ")
    assert words in message


@pytest.mark.parametrize(
    "chosen",
    ["NCCL_SOCKET_IFNAME=eth", "NCCL_SOCKET_IFNAME=^docker,lo", "NCCL_IB_HCA=mlx5_1:1",
     "NCCL_IB_HCA=^=mlx5_1", "GLOO_SOCKET_IFNAME=lo,eth0"],
)  # fmt: skip
def test_a_variable_that_names_what_is_there_is_well(chosen: str):
    variable, _, value = chosen.partition("=")
    assert complaints(nics={**NICS, variable: value}) == []


def test_an_interface_counts_unless_it_is_known_to_be_down(monkeypatch: pytest.MonkeyPatch):
    states = {"lo": "unknown", "eth0": "up\n", "eth1": "down\n", "tun0": "unknown\n", "a0": None}
    monkeypatch.setattr(measures, "interfaces", lambda: [*states])
    monkeypatch.setattr(measures.reading, "file_text", lambda path: states[path.split("/")[4]])
    assert measures.nics_of(node_of(machines.LUMI), None, {})["links"] == ["a0", "eth0", "tun0"]


@pytest.mark.full
def test_every_line_is_there_and_of_what_was_measured(tmp_path: Path):
    words = ("--quiet", "--nproc", 2, "--bind", "none", *ALL, "--json")
    status, said = told("env", f"TMPDIR={tmp_path}", *LAUNCHER, *words)
    assert {one["name"] for one in said["verdicts"] if one["status"] != "note"} >= LINES
    failed = [one for one in said["verdicts"] if one["status"] == "fail"]
    assert status == (1 if failed else 0)
    for one in said["measured"]:
        assert one["versions"]["torch"] == version("torch")
        assert one["gflops"] > 0
        assert one["copied_gb_per_s"] > 0
        assert one["sums"]["within the node"] > 0
        assert abs(one["clock_s"]) < 1
        assert one["rank_0"] is None
    first, second = (one["disks"] for one in said["measured"])
    assert first["temporary files"]["place"] == str(tmp_path)
    assert first["temporary files"]["free_gib"] > 0
    assert second == {}  # one of each node writes

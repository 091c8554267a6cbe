"""check --all: what it measures in real workers, and how it judges."""

import resource
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import pytest

from spawnlaunch.check import measurements
from spawnlaunch.check.rules import of_measured
from tests import machines
from tests.check.test_check import told
from tests.machines.tree import node_of
from tests.support.launching import LAUNCHER

ALL = ("-m", "spawnlaunch.check", "--all")
LINES = {
    *("versions", "matrix product", "all-reduce", "network", "clocks", "limits"),
}


LIMITS = {"memlock": (None, None), "nofile": (65536, 65536), "nproc": (None, None),
          "shm": (1 << 34, None)}  # fmt: skip


def rank(number: int, **other: Any) -> dict[str, Any]:
    """What a rank of a healthy node measures, but for `other`."""
    return {
        "rank": number, "host": "node1", "versions": {"torch": "2.13.0", "python": "3.11.7"},
        "computes_on": "cuda:0", "gflops": 500e3, "gflops_per_thread": 40.0, "others": 0.0,
        "clock_s": 0.0, "sums": {"within the node": 200.0}, "limits": LIMITS,
        "nics": {"all": ["mlx5_0", "mlx5_1"], "near": ["mlx5_0"], "links": ["eth0"],
                 "interfaces": ["lo", "eth0"], "NCCL_IB_HCA": None, "NCCL_SOCKET_IFNAME": None,
                 "GLOO_SOCKET_IFNAME": None, "TP_SOCKET_IFNAME": None},
        "surroundings": {"cpus": 64, "load": 2.0, "quota_cpus": None},
        **other,
    }  # fmt: skip


def complaints(**other: Any) -> list[tuple[str, str, str]]:
    """Name, status and message of what is not ok, where rank 2 of 4 is not as the others."""
    found = of_measured([rank(0), rank(1), rank(2, **other), rank(3)])
    assert all(one.remedy for one in found if one.status != "ok")
    return [(one.name, one.status, one.message) for one in found if one.status != "ok"]


def test_nothing_is_said_of_ranks_that_are_alike():
    assert complaints() == []


@pytest.mark.parametrize(
    ("other", "name", "status", "words"),
    [
        ({"versions": {"torch": "2.12.0", "python": "3.11.7"}}, "versions", "fail",
         "torch: ranks 0-1,3 2.13.0, rank 2 2.12.0"),
        ({"gflops": 300e3}, "matrix product", "warn", "rank 2 on node1 3e+05"),
        ({"gflops": 50e3}, "matrix product", "fail", "rank 2 on node1 5e+04"),
        ({"sums": {"within the node": 20.0}, "host": "node2"},
         "all-reduce", "warn", "node2 is slowest"),
        ({"clock_s": -3.5, "host": "node2"}, "clocks", "fail", "node2 is 3.5 s behind rank 0's"),
        ({"limits": {**LIMITS, "memlock": (65536, None)}},
         "limits", "warn", "locked memory (ulimit -l): 65,536, of rank 2"),
        ({"limits": {**LIMITS, "nofile": (1024, 1024)}},
         "limits", "warn", "open files (ulimit -n): 1,024, of rank 2"),
        ({"limits": {**LIMITS, "shm": (64 << 20, None)}},
         "limits", "fail", "shared memory (/dev/shm): 67,108,864, of rank 2"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_rank_or_node(
    other: Mapping[str, Any], name: str, status: str, words: str
):
    ((said, how, message),) = complaints(**other)
    assert (said, how) == (name, status)
    assert words in message


def test_the_adapter_next_to_the_device_is_named():
    found = {one.name: one.message for one in of_measured([rank(0)])}
    told = "adapters: mlx5_0, mlx5_1 (next to the device: mlx5_0); interfaces: eth0"
    assert found["network"].endswith(told)


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
    node = node_of(machines.LUMI)  # it is read before reading is replaced
    states = {"lo": "unknown", "eth0": "up\n", "eth1": "down\n", "tun0": "unknown\n", "a0": None}
    monkeypatch.setattr(measurements, "interfaces", lambda: [*states])
    monkeypatch.setattr(measurements.reading, "file_text", lambda path: states[path.split("/")[4]])
    assert measurements.nics_of(node, None, {})["links"] == ["a0", "eth0", "tun0"]


@pytest.mark.full
def test_every_line_is_there_and_of_what_was_measured():
    words = ("--quiet", "--nproc", 2, "--bind", "none", *ALL, "--json")
    status, said = told(*LAUNCHER, *words)
    assert {one["name"] for one in said["verdicts"] if one["status"] != "note"} >= LINES
    failed = [one for one in said["verdicts"] if one["status"] == "fail"]
    assert status == (1 if failed else 0)
    for one in said["ranks"]:
        assert one["versions"]["torch"] == version("torch")
        assert one["gflops"] > 0
        assert one["sums"]["within the node"] > 0
        assert abs(one["clock_s"]) < 1
        assert tuple(one["limits"]["nofile"]) == resource.getrlimit(resource.RLIMIT_NOFILE)

"""Captures of real machines, where a folder of them lies beside this checkout, are read right."""

import json
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch import cpuset
from spawnlaunch import node as nodes
from spawnlaunch.binding.plan import plan
from spawnlaunch.node import Node
from spawnlaunch.node.visible import visible
from tests.binding import scenarios

scenarios.require()


def captured(name: str, tmp_path: Path) -> Node:
    root = scenarios.unpack(scenarios.FOLDER / "captured" / f"{name}.tar.bz2", tmp_path)
    return nodes.read(str(root))


def text(cpus: frozenset[int] | None) -> str | None:
    return None if cpus is None else cpuset.format(cpus)


@pytest.mark.full
def test_a_power9_with_gpu_memory_nodes_and_few_files(tmp_path: Path) -> None:
    """Neither local_cpulist nor numa_node nor vendor: masks, and what the driver names."""
    node = captured("nvidiagpunumanodes", tmp_path)
    assert [(d.address, d.numa, text(d.local_cpus)) for d in node.devices] == [
        ("0004:05:00.0", 0, "0-15"),
        ("0004:06:00.0", 0, "0-15"),
        ("0006:00:00.0", 0, "0-15"),
        ("0007:00:00.0", 8, "88-103"),
        ("0035:04:00.0", 8, "88-103"),
        ("0035:05:00.0", 8, "88-103"),
    ]
    kinds = {each.id: each.kind for each in node.numa}
    assert kinds == {0: "cpu", 8: "cpu"} | dict.fromkeys(range(250, 256), "gpu")
    assert text(node.cpus_allowed) == "0-15,88-103"
    assert len(node.cores) == 8
    assert [text(group) for group in node.l3] == ["0-7", "8-15", "88-95", "96-103"]
    result = plan(node, visible(node, {}), 6)
    assert result.warnings == ()
    assert [set(b.memory_nodes) for b in result.bindings] == [{0}, {0}, {0}, {8}, {8}, {8}]


@pytest.mark.full
def test_an_aspeed_vga_and_a_coprocessor_are_no_devices(tmp_path: Path) -> None:
    node = captured("32em64t-2n8c+dax+nvme+mic+dimms", tmp_path)
    assert node.devices == ()
    assert [(nic.name, nic.numa, text(nic.local_cpus)) for nic in node.nics] == [
        ("mlx4_0", 1, "8-15")
    ]


def test_cpu_0_and_node_0_offline(tmp_path: Path) -> None:
    node = captured("offline-cpu0-node0", tmp_path)
    assert text(node.cpus_online) == text(node.cpus_allowed) == "4-20"
    assert [(n.id, text(n.cpus)) for n in node.numa] == [(1, "5,7,9,11,13,15,17,19")]
    assert node.memory_nodes == {1}


def test_a_cpuset_of_version_1(tmp_path: Path) -> None:
    node = captured("16amd64-8n2c-cpusets", tmp_path)
    assert text(node.cpus_allowed) == "0-3,5-6,12-15"
    assert text(node.cpus_online) == "0-3,5-15"
    assert node.memory_nodes == {1, 2, 3, 4}
    result = plan(node, visible(node, {}), 2)
    assert frozenset().union(*(b.cpus for b in result.bindings)) == node.cpus_allowed
    assert all(binding.memory_nodes <= node.memory_nodes for binding in result.bindings)


def _converted() -> list[str]:
    names = (path.name for path in (scenarios.FOLDER / "expected").glob("*.json"))
    return sorted(name[:-5] for name in names if not name.endswith(".mpibind.json"))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=scenarios.marks(name)) for name in _converted()]
)
def test_what_hwloc_says_of_the_same_machine(name: str, tmp_path: Path) -> None:
    said: dict[str, Any] = json.loads((scenarios.FOLDER / "expected" / f"{name}.json").read_text())
    archive = scenarios.FOLDER / "trees" / f"{name}.tar.xz"
    node = nodes.read(str(scenarios.unpack(archive, tmp_path)))
    assert text(node.cpus_online) == said["online"]
    assert len(node.cores) == said["n_cores"]
    assert [text(group) for group in node.l3] == said["l3"]
    assert [text(group) for group in node.packages] == list(said["packages"].values())
    for each in node.numa:
        assert text(each.cpus) == said["numa"][str(each.id)]["cpulist"]
    devices = [(d.address, d.numa, text(d.local_cpus)) for d in node.devices]
    gpus = sorted(said["gpus"], key=lambda gpu: gpu["bdf"])
    assert devices == [(g["bdf"], g["numa_node"], g["local_cpulist"]) for g in gpus]

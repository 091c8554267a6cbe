"""Plans for machines as their sites publish them, against what the sites recommend."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spawnlaunch import cpuset
from spawnlaunch.binding.claims import TaskView
from spawnlaunch.binding.plan import Plan, plan
from spawnlaunch.node import Node
from spawnlaunch.node.visible import visible
from spawnlaunch.values import DEFAULT, FIRST_PER_L3, Policy
from tests import machines
from tests.machines.tree import Machine, node_of
from tests.pages.reading import blocks
from tests.support.launching import ROOT, clean_environ


def planned(node: Node, policy: Policy = DEFAULT, environ: dict[str, str] | None = None) -> Plan:
    seen = visible(node, environ or {})
    return plan(node, seen, len(seen.devices), policy)


def lists(plan: Plan) -> list[str]:
    return [cpuset.format(binding.cpus) for binding in plan.bindings]


LUMI_RECOMMENDS = ["49-55", "57-63", "17-23", "25-31", "1-7", "9-15", "33-39", "41-47"]
FRONTIER_GIVES = {4: "1-7", 5: "9-15", 2: "17-23", 3: "25-31", 6: "33-39", 7: "41-47"}
FRONTIER_GIVES |= {0: "49-55", 1: "57-63"}


@pytest.mark.parametrize("machine", machines.ALL, ids=lambda m: m.name)
def test_every_rank_sits_next_to_its_device_and_alone(machine: Machine) -> None:
    node = node_of(machine)
    plan = planned(node)
    assert plan.warnings == ()
    assert node.warnings == ()
    assert [binding.device for binding in plan.bindings] == [d.number for d in node.devices]
    taken: set[int] = set()
    for binding, device in zip(plan.bindings, node.devices, strict=True):
        assert binding.locality == "local"
        assert device.local_cpus is not None
        assert binding.cpus <= device.local_cpus
        assert binding.memory_nodes == {device.numa}
        assert not binding.cpus & taken
        taken |= binding.cpus


def test_lumi_with_the_first_core_of_each_l3_reserved() -> None:
    policy = Policy(reserve=FIRST_PER_L3, smt=False)
    plan = planned(node_of(machines.LUMI), policy)
    assert lists(plan) == LUMI_RECOMMENDS
    assert {binding.threads for binding in plan.bindings} == {7}


def test_lumi_where_slurm_keeps_these_cores_already() -> None:
    kept = frozenset(range(0, 128, 8))
    node = node_of(machines.LUMI)
    left = node._replace(cpus_allowed=node.cpus_allowed - kept)
    for policy in (Policy(smt=False), Policy(smt=False, reserve=FIRST_PER_L3)):
        seen = visible(node, {})
        assert lists(plan(left, seen, 8, policy)) == LUMI_RECOMMENDS


def test_frontier_gives_each_device_the_cores_that_its_guide_shows() -> None:
    plan = planned(node_of(machines.FRONTIER), Policy(reserve=FIRST_PER_L3, smt=False))
    assert {b.device: cpuset.format(b.cpus) for b in plan.bindings} == FRONTIER_GIVES


def test_a_reversed_list_moves_ranks_and_not_cores() -> None:
    node = node_of(machines.LUMI)
    backwards = planned(node, environ={"ROCR_VISIBLE_DEVICES": "7,6,5,4,3,2,1,0"})
    assert [binding.device for binding in backwards.bindings] == [7, 6, 5, 4, 3, 2, 1, 0]
    assert lists(backwards) == lists(planned(node))[::-1]


def test_perlmutter_counts_against_its_numa_nodes() -> None:
    plan = planned(node_of(machines.PERLMUTTER))
    assert [set(binding.memory_nodes) for binding in plan.bindings] == [{3}, {2}, {1}, {0}]
    assert lists(plan)[0] == "48-63,112-127"


def test_juwels_booster_sits_on_3_1_7_5() -> None:
    plan = planned(node_of(machines.JUWELS_BOOSTER))
    assert [set(binding.memory_nodes) for binding in plan.bindings] == [{3}, {1}, {7}, {5}]
    assert {binding.threads for binding in plan.bindings} == {6}


def test_dgx_a100_ranks_share_a_numa_node_in_whole_core_complexes() -> None:
    plan = planned(node_of(machines.DGX_A100))
    # dgxa100_ccx.sh takes the first and the last complex of the four that two ranks divide here.
    complexes = ["48-51", "60-63", "16-19", "28-31", "112-115", "124-127", "80-83", "92-95"]
    for binding, cpus in zip(plan.bindings, complexes, strict=True):
        assert cpuset.parse(cpus) <= binding.cpus
        assert binding.threads == 8
    assert [min(b.memory_nodes) for b in plan.bindings] == [3, 3, 1, 1, 7, 7, 5, 5]


def test_h100_ranks_divide_their_socket() -> None:
    plan = planned(node_of(machines.HGX_H100))
    first = frozenset().union(*(binding.cpus for binding in plan.bindings[:4]))
    second = frozenset().union(*(binding.cpus for binding in plan.bindings[4:]))
    assert cpuset.format(first) == "0-55,112-167"
    assert cpuset.format(second) == "56-111,168-223"
    assert {binding.threads for binding in plan.bindings} == {14}


def test_gh200_ranks_have_a_superchip_each_and_no_gpu_memory() -> None:
    plan = planned(node_of(machines.GH200))
    assert lists(plan) == ["0-71", "72-143", "144-215", "216-287"]
    assert [set(binding.memory_nodes) for binding in plan.bindings] == [{0}, {1}, {2}, {3}]


def test_aurora_tiles_as_the_facility_binds_them() -> None:
    node = node_of(machines.AURORA)
    policy = Policy(reserve=cpuset.parse("0,52,104,156"), smt=False, threads=8)
    assert lists(planned(node, policy)) == [
        *("1-8", "9-16", "17-24", "25-32", "33-40", "41-48"),
        *("53-60", "61-68", "69-76", "77-84", "85-92", "93-100"),
    ]
    whole = planned(node, policy._replace(threads=16), {"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"})
    assert lists(whole) == ["1-16", "17-32", "33-48", "53-68", "69-84", "85-100"]


def test_mi300a_in_one_and_in_three_partitions() -> None:
    whole = planned(node_of(machines.MI300A))
    assert lists(whole)[1] == "24-47,120-143"
    gpus = tuple(gpu._replace(parts=3) for gpu in machines.MI300A.gpus)
    node = node_of(machines.MI300A._replace(gpus=gpus))
    assert [device.partition for device in node.devices] == [0, 1, 2] * 4
    assert {device.address for device in node.devices[:3]} == {"0000:02:00.0"}
    thirds = planned(node)
    assert lists(thirds)[:3] == ["0-7,96-103", "8-15,104-111", "16-23,112-119"]


def test_marenostrum_5_ranks_begin_where_its_map_says() -> None:
    plan = planned(node_of(machines.MARENOSTRUM5))
    assert [min(binding.cpus) for binding in plan.bindings] == [0, 20, 40, 60]


@pytest.mark.parametrize("machine", machines.ALL, ids=lambda m: m.name)
def test_tasks_that_see_one_device_each_agree_without_a_word(machine: Machine) -> None:
    node = node_of(machine)
    everything = visible(node, {})
    together = plan(node, everything, len(everything.devices))
    for rank, device in enumerate(everything.devices):
        alone = everything._replace(devices=(device,))
        own = plan(node, alone, len(everything.devices), task=TaskView(rank)).bindings[0]
        assert own == together.bindings[rank]


def typed(line: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """What comes of lines in a shell that finds this Python, and the tests of this checkout."""
    paths = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    words = ["bash", "-c", line]
    environ = clean_environ(**paths)
    return subprocess.run(words, cwd=directory, env=environ, capture_output=True, text=True)


def test_the_lines_of_the_page_make_copy_and_draw_the_node_that_it_shows(tmp_path: Path) -> None:
    every = list(blocks(ROOT / "docs" / "pinning.md"))
    copying, copied, made, picture = every[:4]
    make, draw = made.commands
    for line in (make, draw):
        done = typed(line, tmp_path)
        assert done.returncode == 0, done.stderr
    assert picture.text in done.stdout
    typed(copying.text.replace(" /", " lumi/"), tmp_path)  # it has no files of NVIDIA
    done = typed(draw.replace("lumi", "node/lumi"), tmp_path)
    assert picture.text in done.stdout, done.stderr
    typed(copying.text.replace("mkdir", "rm -r node; mkdir"), tmp_path)  # of this machine
    for line in copied.commands:
        done = typed(line, tmp_path)
        assert done.returncode == 0, done.stderr

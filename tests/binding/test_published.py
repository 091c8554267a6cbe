"""Plans for machines as their sites publish them, against what the sites recommend."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spawnlaunch.base import cpuset
from spawnlaunch.binding.plan import Plan, plan
from spawnlaunch.cli.values import DEFAULT, FIRST_PER_L3, Policy
from spawnlaunch.node import Node
from spawnlaunch.node.visible import visible
from tests import machines
from tests.machines.tree import Machine, node_of
from tests.pages.reading import blocks
from tests.support.launching import ROOT, clean_environ


def planned(node: Node, policy: Policy = DEFAULT, environ: dict[str, str] | None = None) -> Plan:
    seen = visible(node, environ or {})
    return plan(node, seen, len(seen.devices), policy)


def lists(plan: Plan) -> list[str]:
    return [cpuset.format(binding.cpus) for binding in plan.bindings]


# Frontier's guide shows the same cores for each device, and gives its ranks devices 4, 5, 2, ...
LUMI_RECOMMENDS = ["49-55", "57-63", "17-23", "25-31", "1-7", "9-15", "33-39", "41-47"]
AURORA_RECOMMENDS = ["1-8", "9-16", "17-24", "25-32", "33-40", "41-48", "53-60", "61-68", "69-76",
                     "77-84", "85-92", "93-100"]  # fmt: skip
WHOLE_DEVICES = {"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"}
KEPT_FOR_LINUX = Policy(reserve=cpuset.parse(machines.AURORA.reserved), smt=False, threads=8)
THIRDS = tuple(gpu._replace(parts=3) for gpu in machines.MI300A.gpus)


@pytest.mark.parametrize(
    ("machine", "policy", "environ", "cpus"),
    [
        (machines.LUMI, Policy(reserve=FIRST_PER_L3, smt=False), {}, LUMI_RECOMMENDS),
        (machines.PERLMUTTER, DEFAULT, {},
         ["48-63,112-127", "32-47,96-111", "16-31,80-95", "0-15,64-79"]),
        (machines.JUWELS_BOOSTER, Policy(smt=False), {}, ["18-23", "6-11", "42-47", "30-35"]),
        (machines.HGX_H100, Policy(smt=False), {},
         ["0-13", "14-27", "28-41", "42-55", "56-69", "70-83", "84-97", "98-111"]),
        (machines.GH200, DEFAULT, {}, ["0-71", "72-143", "144-215", "216-287"]),
        (machines.AURORA, KEPT_FOR_LINUX, {}, AURORA_RECOMMENDS),
        (machines.AURORA, KEPT_FOR_LINUX._replace(threads=16), WHOLE_DEVICES,
         ["1-16", "17-32", "33-48", "53-68", "69-84", "85-100"]),
        (machines.MI300A, DEFAULT, {},
         ["0-23,96-119", "24-47,120-143", "48-71,144-167", "72-95,168-191"]),
        (machines.MI300A._replace(gpus=THIRDS), Policy(smt=False), {},
         [f"{first}-{first + 7}" for first in range(0, 96, 8)]),
        (machines.MARENOSTRUM5, DEFAULT, {}, ["0-19", "20-39", "40-59", "60-79"]),
    ],
    ids=lambda value: getattr(value, "name", "")
)  # fmt: skip
def test_ranks_sit_where_the_site_says(
    machine: Machine, policy: Policy, environ: dict[str, str], cpus: list[str]
) -> None:
    assert lists(planned(node_of(machine), policy, environ)) == cpus


def test_lumi_where_slurm_keeps_the_first_cores_already() -> None:
    node = node_of(machines.LUMI)
    left = node._replace(cpus_allowed=node.cpus_allowed - cpuset.parse(machines.LUMI.reserved))
    for policy in (Policy(smt=False), Policy(smt=False, reserve=FIRST_PER_L3)):
        assert lists(planned(left, policy)) == LUMI_RECOMMENDS


def test_dgx_a100_ranks_share_a_numa_node_in_whole_core_complexes() -> None:
    plan = planned(node_of(machines.DGX_A100))
    # dgxa100_ccx.sh takes the first and the last complex of the four that two ranks divide here.
    complexes = ["48-51", "60-63", "16-19", "28-31", "112-115", "124-127", "80-83", "92-95"]
    for binding, cpus in zip(plan.bindings, complexes, strict=True):
        assert cpuset.parse(cpus) <= binding.cpus
        assert binding.threads == 8


def typed(line: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """What comes of lines in a shell that finds this Python, and the tests of this checkout."""
    paths = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    words = ["bash", "-c", line]
    environ = clean_environ(**paths)
    return subprocess.run(words, cwd=directory, env=environ, capture_output=True, text=True)


def test_the_lines_of_the_page_make_copy_and_draw_the_node_that_it_shows(tmp_path: Path) -> None:
    every = list(blocks(ROOT / "docs" / "pinning.md"))
    copying, made, picture = every[:3]
    make, draw = made.commands
    for line in (make, draw):
        done = typed(line, tmp_path)
        assert done.returncode == 0, done.stderr
    assert picture.text in done.stdout
    typed(copying.text.replace(" /", " lumi/"), tmp_path)  # it has no files of NVIDIA
    done = typed(draw.replace("lumi", "node/lumi"), tmp_path)
    assert picture.text in done.stdout, done.stderr
    typed(copying.text.replace("mkdir", "rm -r node; mkdir"), tmp_path)  # of this machine
    done = typed(draw.replace("lumi --nproc gpu", "node --nproc 2"), tmp_path)
    assert done.returncode == 0, done.stderr

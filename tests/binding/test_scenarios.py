"""Plans for real machines in ordinary and in unlucky situations keep the rules."""

from pathlib import Path

import pytest

from spawnlaunch import cpuset
from spawnlaunch import node as nodes
from spawnlaunch.binding.claims import TaskView
from spawnlaunch.binding.plan import Plan, plan
from spawnlaunch.node import Node
from spawnlaunch.node.visible import Visible, visible
from spawnlaunch.values import NAMES, Policy
from tests.binding import scenarios
from tests.binding.rules import Placed
from tests.binding.scenarios import Scenario

scenarios.require()


def _variable(node: Node) -> str:
    return "ROCR_VISIBLE_DEVICES" if node.devices[0].vendor == "amd" else "CUDA_VISIBLE_DEVICES"


def _plans(scenario: Scenario, node: Node) -> list[Plan]:
    """One plan for a launcher of all ranks; for tasks that see their own device, one for each."""
    listed = [str(device) for device in scenario["visible"]]
    if scenario.get("each_task_sees_only_its_own_device"):
        return [
            plan(
                node,
                visible(node, {_variable(node): device}),
                len(listed),
                task=TaskView(local_rank),
            )
            for local_rank, device in enumerate(listed)
        ]
    seen = visible(node, {_variable(node): ",".join(listed)})
    if "slurm" in scenario:
        slurm = scenario["slurm"]
        task = TaskView(int(slurm["SLURM_LOCALID"]))
        return [plan(node, seen, int(slurm["SLURM_NTASKS_PER_NODE"]), task=task)]
    return [plan(node, seen, len(scenario["ranks"]))]


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(
            each, id=f"{each['root']}-{each['scenario']}", marks=scenarios.marks(each["root"])
        )
        for each in scenarios.load()
    ],
)
def test_the_rules_hold(scenario: Scenario, machines: dict[str, Path]) -> None:
    node = nodes.read(str(machines[scenario["root"]]), cpuset.parse(scenario["allowed"]))
    plans = _plans(scenario, node)
    bindings = [binding for each in plans for binding in each.bindings]
    placed = [Placed(rank, b.device, b.cpus) for rank, b in enumerate(bindings)]
    warned = any(each.warnings for each in plans)
    assert scenarios.broken_rules(scenario, node, placed, warned) == []


@scenarios.each_machine()
def test_every_policy_stays_inside_what_is_allowed(machine: str, machines: dict[str, Path]) -> None:
    for scenario in scenarios.load(machine):
        node = nodes.read(str(machines[scenario["root"]]), cpuset.parse(scenario["allowed"]))
        everything = Visible(tuple(scenario["visible"]), "", ())
        for name in NAMES:
            for binding in plan(node, everything, len(scenario["visible"]), Policy(name)).bindings:
                assert binding.cpus <= node.cpus_allowed
                assert bool(binding.cpus) == (name != "none")
                assert binding.threads >= 1

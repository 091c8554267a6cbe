"""Plans for whole machines in ordinary and in unlucky situations keep the rules."""

import pytest

from spawnlaunch.binding.claims import TaskView
from spawnlaunch.binding.plan import Plan, plan
from spawnlaunch.node import Node
from spawnlaunch.node.visible import visible
from tests.binding import scenarios
from tests.binding.rules import Placed
from tests.binding.scenarios import Scenario, Start
from tests.machines.tree import Machine, node_of


def planned(node: Node, machine: Machine, start: Start) -> Plan:
    """What this launcher plans."""
    task = None if start.local_rank is None else TaskView(start.local_rank)
    return plan(node, visible(node, start.environ(machine)), start.ranks, task=task)


@pytest.mark.parametrize(
    ("machine", "scenario"),
    [
        pytest.param(machine, scenario, id=f"{machine.name}, {scenario.name}")
        for machine in scenarios.MACHINES
        for scenario in scenarios.of(machine)
    ],
)
def test_the_rules_hold(machine: Machine, scenario: Scenario) -> None:
    node = node_of(machine)._replace(cpus_allowed=scenario.allowed)
    plans = [planned(node, machine, start) for start in scenario.starts]
    bindings = [binding for each in plans for binding in each.bindings]
    placed = [Placed(rank, b.device, b.cpus) for rank, b in enumerate(bindings)]
    warned = any(each.warnings for each in plans)
    assert scenarios.broken_rules(machine, scenario, placed, warned) == []

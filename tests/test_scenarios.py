"""The situations of tests/binding, through the command line: what --explain=json says is judged."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch.base import cpuset
from tests import machines
from tests.binding import scenarios
from tests.binding.rules import Placed
from tests.binding.scenarios import Scenario, Start
from tests.machines.tree import Machine
from tests.support.launching import explain

# Devices that ROCR_VISIBLE_DEVICES lists; threads that not every core has; four threads of a core.
MACHINES = ("MI300A", "CLOUD_VM", "LASSEN")
AMONG_THE_FIRST = ("devices in reverse", "tasks in a cpuset that they share",
                   "cpuset beside other devices")  # fmt: skip
CASES = [
    pytest.param(
        name,
        scenario,
        id=f"{name}, {scenario.name}",
        marks=[pytest.mark.full] * (name != MACHINES[0] or scenario.name not in AMONG_THE_FIRST),
    )
    for name in MACHINES
    for scenario in scenarios.of(machines.NAMED[name])
]


def step(start: Start) -> dict[str, str]:
    """The environment of one task of a step on one node."""
    return {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": str(start.ranks),
        "SLURM_STEP_TASKS_PER_NODE": str(start.ranks),
        "SLURM_STEP_NODELIST": "node0",
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_NODEID": "0",
        "SLURMD_NODENAME": "node0",
        "SLURM_PROCID": str(start.local_rank),
        "SLURM_LOCALID": str(start.local_rank),
    }


def explained(machine: Machine, root: Path, allowed: cpuset.CpuSet, start: Start) -> dict[str, Any]:
    """What this launcher would do on that machine."""
    on = ("--sysfs-root", root, "--allowed-cpus", cpuset.format(allowed))
    if start.local_rank is not None:
        return explain(*on, **start.environ(machine), **step(start))
    return explain(*on, "--nproc", start.ranks, **start.environ(machine))


@pytest.mark.parametrize(("name", "scenario"), CASES)
def test_the_rules_hold_for_what_is_explained(
    name: str, scenario: Scenario, trees: Mapping[str, Path]
):
    machine = machines.NAMED[name]
    every = [explained(machine, trees[name], scenario.allowed, each) for each in scenario.starts]
    workers = [worker for each in every for worker in each["workers"]]
    placed = [
        Placed(rank, worker["device"]["index"], cpuset.parse(worker["cpus"]))
        for rank, worker in enumerate(workers)
    ]
    warned = any(each["warnings"] for each in every)
    assert scenarios.broken_rules(machine, scenario, placed, warned) == []
    addresses = scenarios.addresses(machine)
    for each in every:
        listed = {device["index"]: device["address"] for device in each["node"]["devices"]}
        assert listed == dict(enumerate(addresses))

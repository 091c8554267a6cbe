"""The situations of tests/binding, through the command line: what --explain=json says is judged."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from spawnlaunch import cpuset
from spawnlaunch import node as nodes
from spawnlaunch.node import Node
from tests.binding import scenarios
from tests.binding.rules import Placed
from tests.binding.scenarios import Scenario
from tests.support.launching import explain

scenarios.require()


def on(root: Path, allowed: str, *flags: object, **environ: str) -> dict[str, Any]:
    """What the launcher would do on that machine."""
    return explain("--sysfs-root", root, "--allowed-cpus", allowed, *flags, **environ)


def step(local_rank: int, tasks: int) -> dict[str, str]:
    """The environment of one task of a step on one node."""
    return {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": str(tasks),
        "SLURM_STEP_TASKS_PER_NODE": str(tasks),
        "SLURM_STEP_NODELIST": "node0",
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_NODEID": "0",
        "SLURMD_NODENAME": "node0",
        "SLURM_PROCID": str(local_rank),
        "SLURM_LOCALID": str(local_rank),
    }


def explanations(scenario: Scenario, root: Path, node: Node) -> list[dict[str, Any]]:
    """One launcher's for all ranks; where the tasks were started already, that of each task."""
    mask = "ROCR_VISIBLE_DEVICES" if node.devices[0].vendor == "amd" else "CUDA_VISIBLE_DEVICES"
    listed = [str(device) for device in scenario["visible"]]
    if scenario.get("each_task_sees_only_its_own_device"):
        return [
            on(root, scenario["allowed"], **{mask: device}, **step(rank, len(listed)))
            for rank, device in enumerate(listed)
        ]
    together = {mask: ",".join(listed)}
    if "slurm" in scenario:
        slurm = scenario["slurm"]
        place = step(int(slurm["SLURM_LOCALID"]), int(slurm["SLURM_NTASKS_PER_NODE"]))
        return [on(root, scenario["allowed"], **together, **place)]
    return [on(root, scenario["allowed"], "--nproc", len(listed), **together)]


def violations(scenario: Scenario, root: Path) -> list[str]:
    node = nodes.read(str(root), cpuset.parse(scenario["allowed"]))
    found = explanations(scenario, root, node)
    workers = [worker for each in found for worker in each["workers"]]
    placed = [
        Placed(rank, worker["device"]["index"], cpuset.parse(worker["cpus"]))
        for rank, worker in enumerate(workers)
    ]
    warned = any(each["warnings"] for each in found)
    broken = scenarios.broken_rules(scenario, node, placed, warned)
    return [f"{scenario['root']} {scenario['scenario']}: {rule}" for rule in broken]


@pytest.mark.full
@scenarios.each_machine()
def test_the_rules_hold_in_every_situation(machine: str, machines: dict[str, Path]):
    root = machines[machine]
    with ThreadPoolExecutor(2) as pool:
        judged = pool.map(lambda s: violations(s, root), scenarios.load(machine))
    assert [rule for broken in judged for rule in broken] == []


@scenarios.each_machine()
def test_every_device_is_listed_with_its_address(machine: str, machines: dict[str, Path]):
    for scenario in scenarios.load(machine):
        if scenario["scenario"] == "all":
            devices = on(machines[machine], scenario["allowed"])["node"]["devices"]
            by_index = {device["index"]: device for device in devices}
            for rank in scenario["ranks"]:
                assert by_index[rank["device"]]["address"] == rank["bdf"]

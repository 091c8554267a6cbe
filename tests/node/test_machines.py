"""Whole machines are read as their facts say, also those that are unlike the others."""

import pytest

from spawnlaunch.base import cpuset
from spawnlaunch.base.cpuset import CpuSet
from spawnlaunch.binding.plan import plan
from spawnlaunch.node.visible import visible
from tests import machines
from tests.binding.scenarios import addresses, devices
from tests.machines.tree import MEMORY_KIB, Machine, node_of

WHOLE = [each for each in machines.NAMED.values() if not each.files]


def lists(groups: tuple[CpuSet, ...]) -> list[str]:
    return [cpuset.format(group) for group in groups]


@pytest.mark.parametrize("machine", WHOLE, ids=lambda machine: machine.name)
def test_a_machine_is_read_as_its_facts_say(machine: Machine) -> None:
    node = node_of(machine)
    assert lists(node.cores) == list(machine.cores)
    assert lists(node.l3) == list(machine.l3)
    assert lists(node.packages) == list(machine.packages)
    assert {each.id: cpuset.format(each.cpus) for each in node.numa} == machine.numa
    for each in node.numa:
        assert each.memory == 1024 * machine.memory_kib.get(each.id, MEMORY_KIB)
        assert each.distances[0][0] == min(machine.numa)
        assert dict(each.distances)[each.id] == 10
        assert (each.kind == "cpu") == bool(each.cpus)
    assert node.cpus_allowed == node.cpus_online == cpuset.EMPTY.union(*node.cores)
    adapters = {where: name for name, where in machine.adapters.items()}
    assert node.warnings == ()
    if machine != machines.AURORA:  # two tiles of a device have its address
        assert [(d.address, d.numa, cpuset.format(d.local_cpus or [])) for d in node.devices] == [
            (where, gpu.numa, gpu.cpus)
            for where, gpu in zip(addresses(machine), devices(machine), strict=True)
        ]
    fast = [gpu for gpu in machine.gpus if gpu.vendor in ("infiniband", "slingshot")]
    fast += [gpu for gpu in machine.gpus if gpu.address in adapters and gpu not in fast]
    assert [(nic.name, nic.numa, cpuset.format(nic.local_cpus or [])) for nic in node.nics] == [
        (adapters.get(gpu.address, gpu.address), gpu.numa, gpu.cpus) for gpu in fast
    ]


def test_a_power9_that_shows_masks_alone_and_the_memory_of_its_devices_as_numa_nodes() -> None:
    node = node_of(machines.POWER9)
    places = [(d.address, d.numa, cpuset.format(d.local_cpus or [])) for d in node.devices]
    assert places == [
        ("0004:05:00.0", 0, "0-15"),
        ("0004:06:00.0", 0, "0-15"),
        ("0006:00:00.0", 0, "0-15"),
        ("0007:00:00.0", 8, "88-103"),
        ("0035:04:00.0", 8, "88-103"),
        ("0035:05:00.0", 8, "88-103"),
    ]
    kinds = {each.id: each.kind for each in node.numa}
    assert kinds == {0: "cpu", 8: "cpu"} | dict.fromkeys(range(250, 256), "gpu")
    assert cpuset.format(node.cpus_allowed) == "0-15,88-103"
    assert lists(node.cores)[:2] == ["0-3", "4-7"]
    assert lists(node.l3) == ["0-7", "8-15", "88-95", "96-103"]
    result = plan(node, visible(node, {}), 6)
    assert result.warnings == ()
    assert [set(b.memory_nodes) for b in result.bindings] == [{0}, {0}, {0}, {8}, {8}, {8}]


def test_a_vga_of_a_management_controller_and_a_coprocessor_are_no_devices() -> None:
    assert len(machines.MANAGED_SERVER.gpus) == 3
    assert node_of(machines.MANAGED_SERVER).devices == ()


def test_cpu_0_and_node_0_may_be_offline() -> None:
    node = node_of(machines.OFFLINE)
    assert cpuset.format(node.cpus_online) == cpuset.format(node.cpus_allowed) == "4-20"
    assert [(n.id, cpuset.format(n.cpus)) for n in node.numa] == [(1, "5,7,9,11,13,15,17,19")]
    assert node.memory_nodes == {1}


def test_a_cpuset_of_before_control_groups() -> None:
    node = node_of(machines.CPUSET_V1)
    assert cpuset.format(node.cpus_online) == "0-3,5-15"
    assert cpuset.format(node.cpus_allowed) == "0-3,5-6,12-15"
    assert node.memory_nodes == {1, 2, 3, 4}
    result = plan(node, visible(node, {}), 2)
    assert cpuset.EMPTY.union(*(b.cpus for b in result.bindings)) == node.cpus_allowed
    assert all(binding.memory_nodes <= node.memory_nodes for binding in result.bindings)

"""Which CPUs are next to a device, where firmware and kernel say little."""

import pytest

from spawnlaunch.base import cpuset
from tests.machines.small import small
from tests.machines.tree import Gpu, node_of
from tests.support.explained import explain

LINE = "which CPUs are next to 0000:10:00.0"
# Nodes 1 and 3 have memory alone.
HOMES = {0: "0-1", 1: "", 2: "2-3", 3: ""}


@pytest.mark.parametrize(
    ("row", "cpus"),
    [
        ("32 10 12 40", "2-3"),
        ("12 10 32 40", "0-1"),
        ("32 10 32 11", "0-3"),  # node 3 is nearer, and has none either
        ("", None),
        ("32 10", None),
    ],
)
@pytest.mark.parametrize("listed", ["", "0-3"])
def test_a_device_on_a_node_without_cpus_goes_to_the_nearest_that_has_some(
    row: str, cpus: str | None, listed: str
) -> None:
    node = node_of(small(4, HOMES, (Gpu(1, listed),), distances={1: row}))
    (device,) = node.devices
    assert device.numa == 1
    assert device.local_cpus == (None if cpus is None else cpuset.parse(cpus))
    assert any(line.startswith(LINE) for line in node.warnings) == (cpus is None)


def test_cpus_that_are_offline_do_not_count() -> None:
    homes = {0: "0-1", 1: "2", 2: "3"}
    machine = small(4, homes, (Gpu(1, "2"),), distances={1: "20 10 15"}, offline="2")
    assert node_of(machine).devices[0].local_cpus == {3}


def test_the_ranks_of_such_devices_are_local_and_stay_beside_them() -> None:
    machine = small(4, HOMES, (Gpu(1, ""), Gpu(0, "0-1")), distances={1: "32 10 12 40"})
    workers = explain(machine, "--nproc gpu")["workers"]
    assert [(each["cpus"], each["locality"]) for each in workers] == [
        ("2-3", "local"),
        ("0-1", "local"),
    ]


@pytest.mark.parametrize(
    ("packages", "listed", "cpus"),
    [
        (("0-1", "2-3"), "0-3", None),
        (("0-1", "2-3"), "2-3", "2-3"),
        (("0-1", "2-3"), "", None),
        (("0-3",), "0-3", "0-3"),
        ((), "0-3", None),  # nobody knows how many there are
    ],
)
@pytest.mark.parametrize("numa_node", ["missing", "-1"])
def test_a_list_of_all_cpus_says_nothing_where_packages_are_all_that_is_known(
    packages: tuple[str, ...], listed: str, cpus: str | None, numa_node: str
) -> None:
    without = ("sys/bus/pci/devices/*/numa_node",) if numa_node == "missing" else ()
    gpus = (Gpu(-1, listed), Gpu(-1, listed))
    machine = small(4, {}, gpus, packages=packages, without=without)
    node = node_of(machine)
    assert {each.local_cpus for each in node.devices} == {
        None if cpus is None else cpuset.parse(cpus)
    }
    workers = explain(machine, "--nproc gpu")["workers"]
    assert {each["locality"] for each in workers} == {"unknown" if cpus is None else "local"}


def test_the_adapters_of_a_machine_without_numa_have_no_place_either() -> None:
    nic = Gpu(-1, "0-3", vendor="infiniband")
    (found,) = node_of(small(4, {}, (nic,), packages=("0-1", "2-3"))).nics
    assert found.local_cpus is None

"""Gaudi, Ascend and TPU, as their sources say that a machine shows them. None was ever run."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch import node as nodes
from spawnlaunch.base.cpuset import CpuSet
from spawnlaunch.node import Node, devices, pci
from spawnlaunch.node.devices import ACCELERATORS, Accelerator
from spawnlaunch.node.visible import visible
from tests.machines.tree import INTEL, Gpu, Machine, build, write

TWO_NODES = Machine(
    "host", "invented", ("0", "1", "2", "3"), {0: "0-1", 1: "2-3"}, ("0-3",), ("0-3",)
)
COUNT = 4


def lay_out(root: Path, kind: Accelerator) -> Path:
    """A machine with four of them, two on each NUMA node."""
    build(root, TWO_NODES)
    for i in range(COUNT):
        function = root / f"sys/bus/pci/devices/0000:{0x10 + i:02x}:00.0"
        write(function / "class", f"0x{kind.pci_class:04x}00")
        write(function / "vendor", f"0x{kind.pci_vendor:04x}")
        write(function / "device", "0x1020")
        write(function / "numa_node", i // 2)
        write(function / "local_cpulist", ("0-1", "2-3")[i // 2])
    return root


def read_with_files(root: Path, kind: Accelerator, present: CpuSet) -> tuple[nodes.Device, ...]:
    node = nodes.read(str(root))
    for number in present:
        write(root / f"dev/{kind.files[0]}{number}", "")
    bus = pci.Bus(str(root), pci.read_functions(str(root)), node.cpus_online, node.numa)
    return devices.read(bus, str(root / "dev"), [])


@pytest.fixture(params=ACCELERATORS, ids=lambda kind: kind.vendor)
def kind(request: pytest.FixtureRequest) -> Accelerator:
    found: Accelerator = request.param
    return found


@pytest.fixture
def node(kind: Accelerator, tmp_path: Path) -> Node:
    return nodes.read(str(lay_out(tmp_path, kind)))


def test_each_is_found_with_its_place(node: Node, kind: Accelerator) -> None:
    assert [device.vendor for device in node.devices] == [kind.vendor] * COUNT
    assert [device.numa for device in node.devices] == [0, 0, 1, 1]
    assert [device.ordinal for device in node.devices] == [0, 1, 2, 3]
    assert visible(node, {}).devices == (0, 1, 2, 3)


def test_its_own_variable_says_which_a_worker_sees(node: Node, kind: Accelerator) -> None:
    seen = visible(node, {kind.variable: "2,0"})
    assert seen.source == kind.variable
    # Where the numbers are not those of positions, the count is known and the places are not.
    assert seen.devices == ((2, 0) if kind.by_position else (None, None))
    assert visible(node, {kind.variable: ""}).devices == ()
    assert visible(node, {"CUDA_VISIBLE_DEVICES": "0"}).devices == (0, 1, 2, 3)


@pytest.mark.full
@given(st.sampled_from(ACCELERATORS), st.frozensets(st.integers(0, 9)))
def test_as_many_can_be_used_as_there_are_files(kind: Accelerator, present: CpuSet) -> None:
    with TemporaryDirectory() as root:
        found = read_with_files(lay_out(Path(root), kind), kind, present)
    usable = [device.usable for device in found]
    assert usable.count(True) == min(len(present), COUNT)
    assert (None in usable) == (not present)  # no file at all: nobody can tell


def test_the_neural_unit_of_a_laptop_is_no_device(tmp_path: Path) -> None:
    unit = Gpu(0, "0-3", "0000:00:0b.0", INTEL)
    root = build(tmp_path, TWO_NODES._replace(gpus=(unit,)))
    write(root / "sys/bus/pci/devices/0000:00:0b.0/class", "0x120000")
    assert nodes.read(str(root)).devices == ()

"""Which devices a worker sees: the lists of CUDA, ROCm and Level Zero, and Slurm's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.node import Node
from spawnlaunch.node.visible import DEVICE_LISTS, ZE_MASK, Visible, visible
from tests import machines
from tests.machines.tree import AMD, INTEL, Gpu, node_of

H100 = "GPU-0000000{}-0000-0000-0000-000000000000"


@pytest.fixture(scope="module")
def nvidia() -> Node:
    return node_of(machines.HGX_H100)


@pytest.fixture(scope="module")
def amd() -> Node:
    return node_of(machines.LUMI)


@pytest.fixture(scope="module")
def intel() -> Node:
    return node_of(machines.AURORA)


def cuda(node: Node, value: str) -> Visible:
    return visible(node, {"CUDA_VISIBLE_DEVICES": value})


def test_without_a_variable_every_device_is_visible(nvidia: Node) -> None:
    assert visible(nvidia, {})[:3] == (tuple(range(8)), "", ())


@pytest.mark.parametrize(
    ("value", "devices"),
    [
        ("2,0", (2, 0)),
        (" 1 , 3", (1, 3)),
        ("0,-1,2", (0,)),
        ("", ()),
        ("-1", ()),
        ("1gpu2,2ampere", (1, 2)),
        (f"{H100.format(3)},{H100.format(1)}", (3, 1)),
        ("GPU-00000005", (5,)),
        (f"MIG-{H100.format(6)}/1/0", (6,)),
    ],
)
def test_cuda_lists(nvidia: Node, value: str, devices: tuple[int, ...]) -> None:
    assert cuda(nvidia, value)[:3] == (devices, "CUDA_VISIBLE_DEVICES", ())


@pytest.mark.parametrize(
    ("value", "devices", "said"),
    [
        ("0,8,1", (0,), "'8' names no device and ends the list; devices to choose from: 8"),
        ("1,GPU-ffff,2", (1,), "'GPU-ffff' names no device"),
        ("0,1,1", (), "names a device twice and selects no device"),
        ("GPU-0", (), "'GPU-0' names no device"),  # all eight begin so
        ("GPU-00000005,1", (5,), "'1' names no device and ends the list"),
        ("gpu-00000005", (), "'gpu-00000005' names no device"),
        ("NoDevFiles", (), "'NoDevFiles' names no device"),
    ],
)
def test_a_bad_entry_ends_a_cuda_list(
    nvidia: Node, value: str, devices: tuple[int, ...], said: str
) -> None:
    seen = cuda(nvidia, value)
    assert seen.devices == devices
    assert said in seen.warnings[0]


def test_a_mig_slice_is_counted_though_its_device_is_unknown(nvidia: Node) -> None:
    assert cuda(nvidia, "MIG-3f2a0000-1111").devices == (None,)
    two = cuda(nvidia, "MIG-3f2a0000-1111,MIG-3f2a0000-2222")
    assert two.devices == (None, None)
    assert "sees the first alone" in two.warnings[0]


def test_the_only_device_is_the_parent_of_every_slice(nvidia: Node) -> None:
    one = nvidia._replace(devices=nvidia.devices[:1])
    assert cuda(one, "MIG-3f2a0000-1111,MIG-3f2a0000-2222").devices == (0, 0)


def test_unreadable_uuids_leave_the_count_known(nvidia: Node) -> None:
    nameless = [device._replace(uuid=None) for device in nvidia.devices]
    node = nvidia._replace(devices=tuple(nameless))
    assert cuda(node, f"{H100.format(3)},{H100.format(1)}").devices == (None, None)


def test_devices_that_cannot_be_opened_are_not_counted(nvidia: Node) -> None:
    """In a container sysfs shows them all; CUDA counts those that it can open."""
    mine = [
        device._replace(usable=device.number in (2, 5), ordinal={2: 0, 5: 1}.get(device.number))
        for device in nvidia.devices
    ]
    node = nvidia._replace(devices=tuple(mine))
    assert visible(node, {}).devices == (2, 5)
    assert cuda(node, "1").devices == (5,)


def test_rocr_acts_first_and_hip_within_it(amd: Node) -> None:
    seen = visible(amd, {"ROCR_VISIBLE_DEVICES": "6,2,4", "HIP_VISIBLE_DEVICES": "2,0"})
    assert seen[:3] == ((4, 6), "ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES", ())


ENTRY = st.sampled_from([*"01279", " 3", "-1", "", "0.1", "2.0", H100.format(3), "MIG-a", "MIG-b"])
VARIABLE, LIST = st.sampled_from([*DEVICE_LISTS, ZE_MASK]), st.lists(ENTRY, max_size=4)
LISTS = st.dictionaries(VARIABLE, LIST.map(",".join))


@given(st.sampled_from([machines.HGX_H100, machines.LUMI, machines.AURORA]), LISTS,
       st.sampled_from(["FLAT", "COMPOSITE"]), st.integers(0, 20))  # fmt: skip
def test_the_device_of_a_rank_can_be_shown_to_it_alone(
    machine: machines.Machine, lists: dict[str, str], hierarchy: str, rank: int
) -> None:
    node, environ = node_of(machine), {**lists, "ZE_FLAT_DEVICE_HIERARCHY": hierarchy}
    seen = visible(node, environ)
    alone = visible(node, environ | {k: str(v) for k, v in seen.alone(rank).items()}).devices
    assert alone == ((seen.device_of(rank),) if seen.devices else ())


@pytest.mark.parametrize(
    "inner", ["HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"]
)
def test_a_double_mask_that_leaves_no_device_is_named(amd: Node, inner: str) -> None:
    seen = visible(amd, {"ROCR_VISIBLE_DEVICES": "1", inner: "1"})
    assert seen.devices == ()
    assert "ROCR_VISIBLE_DEVICES=1 leaves 1" in seen.warnings[0]
    assert f"unset {inner}" in seen.warnings[0]


@pytest.mark.parametrize(
    ("value", "devices"),
    [("GPU-000000000000abc3,0", (3, 0)), ("5,5,1", (5,)), ("", ()), ("3,9,1", (3,))],
)
def test_rocr_lists(amd: Node, value: str, devices: tuple[int, ...]) -> None:
    assert visible(amd, {"ROCR_VISIBLE_DEVICES": value}).devices == devices


@pytest.mark.parametrize(
    ("environ", "devices"),
    [
        ({}, tuple(range(12))),
        ({"ZE_AFFINITY_MASK": "3,1"}, (1, 3)),  # a set: the driver keeps its order
        ({"ZE_AFFINITY_MASK": "0.1,2.0"}, (1, 4)),
        ({"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"}, (0, 2, 4, 6, 8, 10)),
        ({"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE", "ZE_AFFINITY_MASK": "1,2"}, (2, 4)),
        ({"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE", "ZE_AFFINITY_MASK": "1.0,1.1,2.1"}, (2, 5)),
    ],
)
def test_level_zero_masks(intel: Node, environ: dict[str, str], devices: tuple[int, ...]) -> None:
    assert visible(intel, environ).devices == devices


def test_a_list_that_selects_nothing_says_so_of_rocm_too(amd: Node) -> None:
    for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        seen = visible(amd, {name: "9"})
        assert seen.devices == ()
        assert f"{name}=9: '9' names no device" in seen.warnings[0]
    assert visible(amd, {"HIP_VISIBLE_DEVICES": "-1"}).warnings == ()


def test_level_zero_entries_that_are_no_device_are_named(intel: Node) -> None:
    seen = visible(intel, {"ZE_AFFINITY_MASK": "0,6.0,12"})
    assert seen.devices == (0,)
    assert "6.0, 12" in seen.warnings[0]


def test_mixed_models_are_told_how_they_are_numbered() -> None:
    gpus = (Gpu(0, "0-39", model=0x2230), Gpu(0, "0-39", model=0x1EB8))
    node = node_of(machines.MARENOSTRUM5._replace(gpus=gpus))
    assert "PCI_BUS_ID" in visible(node, {}).warnings[0]
    fastest = visible(node, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"})
    assert fastest.devices == (None, None)
    assert "not known here" in fastest.warnings[0]


def test_one_vendor_is_taken_where_there_are_two() -> None:
    gpus = (Gpu(0, "0-39", vendor=AMD), Gpu(0, "0-39"), Gpu(0, "0-39", vendor=INTEL))
    node = node_of(machines.MARENOSTRUM5._replace(gpus=gpus))
    seen = visible(node, {})
    assert [node.devices[i or 0].vendor for i in seen.devices] == ["nvidia"]
    assert "nvidia" in seen.warnings[0]


def test_a_list_of_devices_where_there_are_none_is_named(nvidia: Node) -> None:
    seen = cuda(nvidia._replace(devices=()), "0,1")
    assert seen.devices == ()
    assert "shows none" in seen.warnings[0]
    assert visible(nvidia._replace(devices=()), {}).warnings == ()

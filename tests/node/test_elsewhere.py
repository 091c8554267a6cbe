"""Devices that PCI does not show are counted, and what no driver serves is none."""

import shutil
from pathlib import Path

import pytest

from spawnlaunch import node as nodes
from spawnlaunch.binding import picture
from spawnlaunch.node import devices, pci
from spawnlaunch.node.visible import visible
from spawnlaunch.watch import drawing
from tests.machines.small import TWO_NODES, small
from tests.machines.tree import INTEL, Gpu, Machine, build, node_of, write
from tests.support.effort import effort
from tests.support.explained import explain

DRIVER = "proc/driver/nvidia/gpus"
COMPATIBLE = {"proc/device-tree/compatible": "acme,carrier\0nvidia,tegra194\0"}
MICROSOFT = "sys/bus/pci/devices/1000:00:00.0"
WSL_ADAPTER = {
    f"{MICROSOFT}/class": "0x030200",
    f"{MICROSOFT}/vendor": "0x1414",
    f"{MICROSOFT}/device": "0x008e",
}


def named(*addresses: str) -> dict[str, str]:
    """What the driver says of devices at these addresses, whose minors run backwards."""
    last = len(addresses) - 1
    return {
        f"{DRIVER}/{where}/information": f"GPU UUID: \t GPU-{i}\nDevice Minor: \t {last - i}"
        for i, where in enumerate(addresses)
    }


def files(*names: str) -> dict[str, str]:
    return {f"dev/{name}": "" for name in names}


@pytest.mark.parametrize(
    ("facts", "addresses"),
    [
        (named("0001:00:00.0", "0000:09:00.0"), ["0000:09:00.0", "0001:00:00.0"]),
        (named("0000:0A:00.0") | files("nvidia0", "nvidiactl"), ["0000:0a:00.0"]),
        (named("0000:0a:00.0", "0000:0b:00.0") | files("nvidia0"), ["0000:0b:00.0"]),
        (files("nvidiactl", "nvidia10", "nvidia2"), ["/dev/nvidia2", "/dev/nvidia10"]),
        (COMPATIBLE | files("nvidia0", "nvhost-gpu", "nvhost-ctrl"), ["/dev/nvidia0"]),
        (files("nvhost-gpu", "nvgpu"), ["/dev/nvhost-gpu"]),
        (files("nvgpu/igpu0/ctrl"), ["/dev/nvgpu"]),
        (files("nvidiactl", "nvidia-modeset"), []),
        (files("null", "dri/card0"), []),
    ],
)  # fmt: skip
def test_what_the_driver_or_device_files_name_is_counted_and_its_place_is_unknown(
    facts: dict[str, str], addresses: list[str]
) -> None:
    node = node_of(small(2, files=facts))
    seen = [node.devices[number or 0] for number in visible(node, {}).devices]
    assert [device.address for device in seen] == addresses
    assert {(d.vendor, d.numa, d.local_cpus) for d in seen} <= {("nvidia", None, None)}
    lines = [line for line in node.warnings if line.startswith("which CPUs are next to ")]
    assert [", ".join(addresses) in line for line in lines] == [True] * bool(addresses)


@pytest.mark.parametrize("facts", [named("0000:04:00.0"), files("nvidia0"), files("nvgpu/igpu0/x")])
@pytest.mark.parametrize("word", ["gpu", "auto"])
def test_such_a_device_has_a_rank_that_is_shown(facts: dict[str, str], word: str) -> None:
    told = explain(small(4, TWO_NODES, files=facts), f"--nproc {word}")
    (worker,) = told["workers"]
    assert (worker["cpus"], worker["locality"]) == ("0-3", "unknown")
    address = worker["device"]["address"]
    assert address == told["node"]["devices"][0]["address"]
    node = node_of(small(4, TWO_NODES, files=facts))
    line = f"gpu 0 {address}: place not known"
    assert line in picture.picture(node, (), node.cpus_allowed).splitlines()
    assert address in drawing.picture(told["node"], told["workers"], "host")


def test_a_driver_names_more_devices_than_pci_shows() -> None:
    machine = small(4, TWO_NODES, (Gpu(1, "2-3"),), files=named("0000:09:00.0"))
    node = node_of(machine)
    places = [(device.address, device.numa) for device in node.devices]
    assert places == [("0000:09:00.0", None), ("0000:10:00.0", 1)]


def test_a_machine_without_sysfs_counts_the_devices_of_its_driver(tmp_path: Path) -> None:
    for path, text in named("0000:09:00.0").items():
        write(tmp_path / path, text)
    node = nodes.read(str(tmp_path), frozenset({0, 1}))
    assert [device.address for device in node.devices] == ["0000:09:00.0"]


def live(machine: Machine, root: Path) -> tuple[nodes.Device, ...]:
    """The devices as on this machine, where files can be opened."""
    build(root, machine)
    bus = pci.Bus(str(root), pci.read_functions(str(root)), frozenset({0, 1, 2, 3}), ())
    return devices.read(bus, str(root / "dev"), [])


@pytest.mark.parametrize(
    ("facts", "usable"),
    [
        (named("0000:09:00.0", "0000:0a:00.0") | files("nvidia0"), [False, True]),
        (named("0000:09:00.0"), [None]),  # made when CUDA first wants them
        (files("nvidia0", "nvidia3"), [True, True]),
        (files("nvgpu/igpu0/ctrl"), [None]),
    ],
)
def test_such_a_device_can_be_used_if_its_file_can_be_opened(
    facts: dict[str, str], usable: list[bool | None], tmp_path: Path
) -> None:
    assert [device.usable for device in live(small(4, files=facts), tmp_path)] == usable


def test_who_has_no_gpu_pays_two_looks(tmp_path: Path) -> None:
    root = str(build(tmp_path, small(2)))
    bus = pci.Bus(root, [], frozenset({0, 1}), ())
    assert effort(lambda: devices.read(bus, None, [])).opened <= 2
    assert devices.why_none(root) == ""


DRIVEN = Gpu(0, "0-1")


@pytest.mark.parametrize(
    ("card", "count"),
    [
        (DRIVEN._replace(vendor="nvidia vga", driver=""), 1),
        (DRIVEN._replace(vendor="nvidia vga", driver="nouveau"), 1),
        (DRIVEN._replace(driver="vfio-pci"), 1),
        (DRIVEN._replace(vendor="nvidia vga", driver="nvidia"), 2),
        (DRIVEN._replace(vendor="nvidia vga"), 2),
    ],
)
@pytest.mark.parametrize("has_files", [False, True])
def test_what_the_driver_does_not_name_beside_others_is_no_device(
    card: Gpu, count: int, has_files: bool, tmp_path: Path
) -> None:
    machine = small(4, TWO_NODES, (card._replace(numa=-1, cpus="0-3"), DRIVEN))
    node = node_of(machine)
    assert len(node.devices) == len(visible(node, {}).devices) == count
    lines = [line for line in node.warnings if line.startswith("which CPUs")]
    assert len(lines) == count - 1  # of a card that is no device, not a word
    minors = (f"nvidia{minor}" for minor in range(2 if has_files else 0))
    found = live(machine._replace(files=files("null", *minors)), tmp_path)
    assert len([each for each in found if each.usable is not False]) == count


def test_what_a_container_hides_stays_a_device_that_other_tasks_may_have(tmp_path: Path) -> None:
    card = Gpu(0, "0-1", vendor="nvidia vga", driver="nvidia")
    root = build(tmp_path, small(2, gpus=(card, card)))
    shutil.rmtree(root / DRIVER / "0000:10:00.0")
    assert [device.usable for device in nodes.read(str(root)).devices] == [False, None]


@pytest.mark.parametrize(
    ("minors", "count"), [((None, 128), 1), ((129, 128), 2), ((None, None), 2)]
)
def test_an_intel_card_without_a_render_node_is_none_where_another_has_one(
    minors: tuple[int | None, ...], count: int, tmp_path: Path
) -> None:
    machine = small(2, gpus=tuple(Gpu(0, "0-1", vendor=INTEL, minor=minor) for minor in minors))
    assert len(node_of(machine).devices) == count
    root = build(tmp_path, machine)
    bus = pci.Bus(str(root), pci.read_functions(str(root)), frozenset({0, 1}), ())
    assert len(devices.read_intel(bus, str(root / "dev"))) == len(list(filter(None, minors)))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (files("dxg"), "this is WSL"),
        (WSL_ADAPTER, "this is WSL"),
        (WSL_ADAPTER | {f"{MICROSOFT}/device": "0x5353"}, ""),  # the display of Hyper-V
        (COMPATIBLE, "a Tegra board (nvidia,tegra194)"),
        ({"proc/device-tree/compatible": "raspberrypi,5-model-b\0"}, ""),
        ({"proc/driver/nvidia/version": "NVRM"}, "an NVIDIA driver is loaded"),
        (files("nvidiactl"), "an NVIDIA driver is loaded (/dev/nvidiactl)"),
        ({}, ""),
    ],
)
def test_a_machine_says_why_cuda_may_see_devices_that_are_not_found(
    facts: dict[str, str], said: str, tmp_path: Path
) -> None:
    root = build(tmp_path, small(2, files=facts))
    assert nodes.read(str(root)).devices == ()
    why = devices.why_none(str(root))
    assert said in why
    assert bool(why) == bool(said)

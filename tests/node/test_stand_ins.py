"""What a driver shows, on the layout of every machine of ../shared: stand-ins for its files.

The trees there hold /sys alone. Beside it goes what the drivers of NVIDIA, AMD and Intel write:
/proc/driver/nvidia, /dev/nvidia<N> and /dev/dri/renderD<N>, each device's or, as in a container,
some devices' only.
"""

import random
from pathlib import Path

import pytest

from spawnlaunch import node as nodes
from spawnlaunch.node import Device, devices, pci
from tests.binding import scenarios
from tests.node.tree import write

scenarios.require()

FIRST_RENDER = 128


def uuid(number: int) -> str:
    return f"GPU-{number:08x}-0000-0000-0000-000000000000"


def stand_in(root: Path, found: tuple[Device, ...], draw: random.Random) -> dict[int, int]:
    """Write the driver's files of all devices; the device files' numbers, by the device's."""
    minors = list(range(len(found)))
    draw.shuffle(minors)  # a driver numbers in the order in which it met them
    for device, minor in zip(found, minors, strict=True):
        if device.vendor == "nvidia":
            text = f"Model: \t\t A100\nGPU UUID: \t {uuid(minor)}\nDevice Minor: \t {minor}"
            write(root / f"proc/driver/nvidia/gpus/{device.address}/information", text)
        elif device.vendor == "intel":
            drm = root / f"sys/bus/pci/devices/{device.address}/drm"
            write(drm / f"renderD{FIRST_RENDER + minor}" / "dev", "")
    return {device.number: minor for device, minor in zip(found, minors, strict=True)}


def read(root: Path, node: nodes.Node, dev: Path) -> tuple[Device, ...]:
    bus = pci.Bus(str(root), pci.read_functions(str(root)), node.cpus_online, node.numa)
    return devices.read(bus, str(dev), [])


@pytest.mark.full
@scenarios.each_machine()
def test_the_devices_that_have_a_file_are_those_that_can_be_used(
    machine: str, tmp_path: Path
) -> None:
    root = scenarios.unpack(scenarios.FOLDER / "trees" / f"{machine}.tar.xz", tmp_path / "tree")
    node = nodes.read(str(root))
    draw = random.Random(machine)
    minors = stand_in(root, node.devices, draw)
    again = nodes.read(str(root)).devices
    assert [d.address for d in again] == [d.address for d in node.devices]
    nvidia = [device for device in again if device.vendor == "nvidia"]
    assert [device.uuid for device in nvidia] == [uuid(minors[d.number]) for d in nvidia]
    for trial in range(4):
        dev = tmp_path / f"dev{trial}"
        shown = {d.number for d in again if trial == 0 or draw.random() < 0.5}
        write(dev / "null", "")
        for device in again:
            if device.number in shown and device.minor is not None:
                name = "nvidia" if device.vendor == "nvidia" else "dri/renderD"
                write(dev / f"{name}{device.minor}", "")
        found = read(root, node, dev)
        assert [(d.address, d.numa, d.local_cpus) for d in found] == [
            (d.address, d.numa, d.local_cpus) for d in node.devices
        ]
        told = [device for device in found if device.minor is not None]
        files_there = {d.number: (dev / file_of(d)).exists() for d in told}
        none_made_yet = not any(files_there.values()) and bool(nvidia)
        if not none_made_yet:
            assert {d.number: d.usable for d in told} == files_there
        for vendor in {d.vendor for d in found}:
            ordinals = [d.ordinal for d in found if d.vendor == vendor and d.ordinal is not None]
            assert sorted(ordinals) == list(range(len(ordinals)))
        assert all((d.ordinal is None) == (d.usable is False) for d in found)


def file_of(device: Device) -> str:
    return f"{'nvidia' if device.vendor == 'nvidia' else 'dri/renderD'}{device.minor}"

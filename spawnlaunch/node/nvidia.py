"""Read NVIDIA devices: graphics functions of vendor 10de, and the driver's files about them.

They are /proc/driver/nvidia/gpus/0000:c1:00.0/information, of which these lines are used:

    GPU UUID:        GPU-029490c8-a116-638b-7018-1a6b7a9002ef
    Device Minor:    0

A container shows every device of the host in sysfs, but only its own as /dev/nvidia<minor> (and,
with NVIDIA's own container tools, only its own below /proc/driver/nvidia/gpus). A control group
leaves the files there and forbids their use: access(2) checks that without opening the device,
which would wake a sleeping one. With CUDA_DEVICE_ORDER=PCI_BUS_ID the runtime counts by address.

A sandbox without /sys/bus/pci has devices too, which the driver or only the device files show. The
GPU of a Tegra board is on no bus: /dev/nvidia0, or /dev/nvhost-gpu and /dev/nvgpu.
"""

from __future__ import annotations

import os

from spawnlaunch.base import reading
from spawnlaunch.node import cpus, hardware, pci, sysfs

NVIDIA_DRIVER = "/proc/driver/nvidia"
OF_A_BOARD = ("nvhost-gpu", "nvgpu")


def read(bus: pci.Bus, dev: str | None) -> list[hardware.Device]:
    """The NVIDIA devices in the order of their addresses, or of their minors without addresses.

    `dev` is /dev, None for a snapshot: its device files cannot be opened.
    """
    base = bus.root + cpus.NVIDIA_GPUS
    # The driver may write an address in capitals, and sysfs never does.
    driven = {name.lower(): f"{base}/{name}/information" for name in sysfs.names(base)}
    nodes = _device_nodes(bus.root, dev)
    on_bus = [
        function.address
        for function in bus.graphics
        if function.vendor == pci.NVIDIA or function.address in driven
        if not driven or function.address in driven or _is_hidden(bus, function)
    ]
    addresses = sorted(sorted({*on_bus, *driven}), key=pci.order)
    found = [_device(address, driven, nodes, dev) for address in addresses]
    return found or _of_files(bus.root, nodes, dev)


def _is_hidden(bus: pci.Bus, function: pci.Function) -> bool:
    """Whether the driver may serve a function that its files do not show, as in a container.

    If not, it is no device: a display card that the driver no longer supports, or one that is given
    to a virtual machine.
    """
    driver = bus.driver(function.address)
    return driver == "nvidia" if driver else function.pci_class != pci.VGA


def _device(
    address: str, driven: dict[str, str], nodes: dict[int, str] | None, dev: str | None
) -> hardware.Device:
    lines = sysfs.fields(driven[address], ":") if address in driven else {}
    minor = lines.get("Device Minor", "")
    known = int(minor) if reading.is_number(minor) else None
    uuid = lines.get("GPU UUID", "")
    if driven and address not in driven:
        usable: bool | None = False
    elif known is not None and nodes is not None:
        usable = _may_open(nodes.get(known), dev)
    else:  # without a device file no device can be opened
        usable = False if nodes == {} else None
    return hardware.Device(
        number=0,
        address=address,
        vendor="nvidia",
        uuid=uuid if uuid.startswith("GPU-") and "?" not in uuid else None,
        minor=known,
        usable=usable,
    )


def _device_nodes(root: str, dev: str | None) -> dict[int, str] | None:
    """The device files by minor; None where the driver is loaded and has not made any yet.

    None too for a snapshot without them, as they may not have been copied.
    """
    directory = dev or f"{root}/dev"
    nodes = {minor: f"{directory}/nvidia{minor}" for minor in sysfs.numbers(directory, "nvidia")}
    may_come = dev is None or os.path.isdir(root + NVIDIA_DRIVER)
    return None if not nodes and may_come else nodes


def _of_files(root: str, nodes: dict[int, str] | None, dev: str | None) -> list[hardware.Device]:
    """The devices that only their device files show."""
    if nodes:
        return [
            hardware.Device(
                0, f"/dev/nvidia{minor}", "nvidia", minor=minor, usable=_may_open(path, dev)
            )
            for minor, path in nodes.items()
        ]
    files = [name for name in OF_A_BOARD if os.path.exists(f"{dev or root + '/dev'}/{name}")]
    return [hardware.Device(0, f"/dev/{name}", "nvidia") for name in files[:1]]


def _may_open(path: str | None, dev: str | None) -> bool | None:
    if path is None:
        return False
    return None if dev is None else os.access(path, os.R_OK | os.W_OK)

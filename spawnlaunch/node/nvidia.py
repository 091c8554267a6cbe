"""NVIDIA devices: graphics functions of vendor 10de, and what the driver says of them.

/proc/driver/nvidia/gpus/0000:c1:00.0/information, of which these lines are used:

    GPU UUID:        GPU-029490c8-a116-638b-7018-1a6b7a9002ef
    Device Minor:    0

A container shows every device of the host in sysfs, but only its own as /dev/nvidia<minor> (and,
made by NVIDIA's own container tools, only its own below /proc/driver/nvidia/gpus). A control group
leaves the files there and forbids them: access(2) asks it, without opening the device, which would
wake a sleeping one. With CUDA_DEVICE_ORDER=PCI_BUS_ID the runtime counts by address.
"""

from __future__ import annotations

import os

from spawnlaunch import reading
from spawnlaunch.node import cpus, hardware, pci, sysfs

NVIDIA_DRIVER = "/proc/driver/nvidia"


def read(bus: pci.Bus, dev: str | None, warnings: list[str]) -> list[hardware.Device]:
    """The NVIDIA devices in the order of their addresses; `dev` is /dev, None for a snapshot."""
    base = bus.root + cpus.NVIDIA_GPUS
    # The driver may write an address in capitals, and sysfs never does.
    driven = {name.lower(): f"{base}/{name}/information" for name in sysfs.names(base)}
    nodes = None if dev is None else _device_nodes(bus.root, dev)
    found = [
        _device(function.address, driven, nodes)
        for function in bus.graphics
        if function.vendor == pci.NVIDIA or function.address in driven
    ]
    if found and all(device.usable is False for device in found):
        warnings.append(
            f"no /dev/nvidia<N> can be opened for the {len(found)} NVIDIA devices on the PCI bus: "
            "they are counted as not usable"
        )
    return found


def _device(address: str, driven: dict[str, str], nodes: dict[int, str] | None) -> hardware.Device:
    lines = sysfs.fields(driven[address], ":") if address in driven else {}
    minor = lines.get("Device Minor", "")
    known = int(minor) if reading.is_number(minor) else None
    uuid = lines.get("GPU UUID", "")
    return hardware.Device(
        number=0,
        address=address,
        vendor="nvidia",
        uuid=uuid if uuid.startswith("GPU-") and "?" not in uuid else None,
        minor=known,
        usable=None if nodes is None else _usable(known, bool(driven), nodes),
    )


def _device_nodes(root: str, dev: str) -> dict[int, str] | None:
    """The device files by minor; None where the driver is loaded and has not made any yet."""
    nodes = {minor: f"{dev}/nvidia{minor}" for minor in sysfs.numbers(dev, "nvidia")}
    return None if not nodes and os.path.isdir(root + NVIDIA_DRIVER) else nodes


def _usable(minor: int | None, driver_names_some: bool, nodes: dict[int, str]) -> bool | None:
    if minor is not None:
        return minor in nodes and os.access(nodes[minor], os.R_OK | os.W_OK)
    # The driver names no minor for this device. If it names some, this one is hidden by the
    # container, or has another driver. If there is no device file, none can be opened.
    return None if nodes and not driver_names_some else False

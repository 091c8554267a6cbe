"""Read AMD devices in the order of the kernel's compute driver (KFD), which is ROCm's order.

They are in /sys/class/kfd/kfd/topology/nodes/<N>/properties, of which these lines are used:

    simd_count 440            0 for a CPU
    location_id 49408         bus << 8 | device << 3 | function, here c1:00.0
    domain 0
    drm_render_minor 128      /dev/dri/renderD128
    unique_id 5363462612...   the UUID in decimal; ROCm writes GPU- and 16 hexadecimal digits

Sources: drivers/gpu/drm/amd/amdkfd/kfd_topology.c of the kernel; "GPU isolation techniques" in the
ROCm documentation. Partitions of an MI300 are KFD nodes that share one PCI address: some kernels
write the partition into the function bits or above bit 28 of location_id, so a function that PCI
does not have means function 0. A node that the control group forbids cannot be read: only the PCI
bus shows its device. Without KFD (a snapshot of sysfs may lack it) the functions of compute classes
on the PCI bus are the devices; a display adapter of class 0300 is none, as only KFD knows whether
ROCm can use it.
"""

from __future__ import annotations

from spawnlaunch.base import reading
from spawnlaunch.node import hardware, pci, sysfs

VENDOR = "amd"


def read(bus: pci.Bus, dev: str | None, warnings: list[str]) -> list[hardware.Device]:
    """The AMD devices that ROCm can see, in ROCm's order, then the other AMD devices.

    `dev` is /dev, None for a snapshot.
    """
    on_bus = [f for f in bus.graphics if f.vendor in (pci.AMD, None)]
    nodes = sysfs.numbers(bus.root + sysfs.KFD_NODES, "")
    driven = _driven(bus.root, nodes, {f.address for f in on_bus}, dev)
    seen = {device.address for device in driven}
    apart = [
        hardware.Device(0, f.address, VENDOR, usable=False if nodes or dev else None)
        for f in on_bus
        if f.vendor == pci.AMD and f.pci_class != pci.VGA and f.address not in seen
    ]
    if apart and driven:
        hidden = ", ".join(device.address for device in apart)
        warnings.append(f"AMD devices that this process may not use: {hidden}")
    return driven + apart


def _driven(
    root: str, nodes: list[int], addresses: set[str], dev: str | None
) -> list[hardware.Device]:
    """The devices that KFD shows; several devices with one address are its partitions."""
    found: list[hardware.Device] = []
    for node in nodes:
        lines = sysfs.fields(f"{root}{sysfs.KFD_NODES}/{node}/properties").items()
        properties = {name: int(text) for name, text in lines if reading.is_number(text, 20)}
        if not properties.get("simd_count"):
            continue
        minor, unique = properties.get("drm_render_minor") or None, properties.get("unique_id")
        address = _address(properties, addresses)
        found.append(
            hardware.Device(
                number=0,
                address=address,
                vendor=VENDOR,
                uuid=f"GPU-{unique:016x}" if unique else None,
                minor=minor,
                partition=sum(1 for other in found if other.address == address),
                usable=sysfs.may_open(dev, minor),
            )
        )
    several = {device.address for device in found if device.partition}
    return [
        device._replace(kind="partition")
        if device.address in several
        else device._replace(partition=None)
        for device in found
    ]


def _address(properties: dict[str, int], addresses: set[str]) -> str:
    location = properties.get("location_id", 0)
    bus, device, function = location >> 8 & 0xFF, location >> 3 & 0x1F, location & 7
    slot = f"{properties.get('domain', 0):04x}:{bus:02x}:{device:02x}"
    exact = f"{slot}.{function}"
    return exact if exact in addresses else f"{slot}.0"

"""Read Intel devices and their tiles.

Only discrete parts count: a display controller of Intel is one unless it is the graphics of the
processor, which is always 0000:00:02 (Documentation/gpu/vgaarbiter.rst and the i915 driver). The
neural unit of a laptop's processor is a PCI accelerator (drivers/accel/ivpu) and no device.
A Data Center GPU Max is one PCI function with two tiles, each a device of its own in the
runtime's default FLAT hierarchy (ZE_FLAT_DEVICE_HIERARCHY in the Level Zero specification). The
drivers make a render node of each function that they serve, and show tiles as

    <PCI function>/tile0, tile1              xe
    <PCI function>/drm/card0/gt/gt0, gt1     i915
"""

from __future__ import annotations

from spawnlaunch.node import hardware, pci, sysfs

PROCESSOR_GRAPHICS = "0000:00:02."


def read(bus: pci.Bus, dev: str | None) -> list[hardware.Device]:
    """The Intel devices in the order of their addresses, each tile a device.

    `dev` is /dev, None for a snapshot.
    """
    found: list[hardware.Device] = []
    for function in bus.graphics:
        address = function.address
        if function.vendor != pci.INTEL or function.pci_class == pci.ACCELERATOR:
            continue
        if address.startswith(PROCESSOR_GRAPHICS):
            continue
        directory = f"{bus.root}{pci.DEVICES}/{address}"
        minor = next(iter(sysfs.numbers(f"{directory}/drm", "renderD")), None)
        whole = hardware.Device(0, address, "intel", minor=minor, usable=sysfs.may_open(dev, minor))
        tiles = _tiles(directory)
        found += [whole._replace(kind="tile", partition=i) for i in range(tiles)] or [whole]
    # A snapshot may have no file of a driver.
    are_shown = dev is not None or any(device.minor is not None for device in found)
    return [device for device in found if device.minor is not None or not are_shown]


def _tiles(directory: str) -> int:
    """The number of tiles of a device; 0 where it is not divided."""
    cards = [card for card in sysfs.names(f"{directory}/drm") if card.startswith("card")]
    counts = [len(sysfs.numbers(f"{directory}/drm/{card}/gt", "gt")) for card in cards]
    most = max(len(sysfs.numbers(directory, "tile")), *counts, 0)
    return most if most > 1 else 0

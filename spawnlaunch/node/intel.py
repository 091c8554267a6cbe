"""Intel devices and their tiles.

Discrete parts only: a display controller of Intel is one unless it is the graphics of the
processor, which is always 0000:00:02 (Documentation/gpu/vgaarbiter.rst and the i915 driver).
A Data Center GPU Max is one PCI function with two tiles, each a device of its own in the
runtime's default FLAT hierarchy (ZE_FLAT_DEVICE_HIERARCHY in the Level Zero specification). The
drivers show tiles as

    <PCI function>/tile0, tile1              xe
    <PCI function>/drm/card0/gt/gt0, gt1     i915
"""

from spawnlaunch.node import files, pci
from spawnlaunch.node.nvidia import Found
from spawnlaunch.reading import is_number

VENDOR = "intel"
PROCESSOR_GRAPHICS = "0000:00:02."


def read(root: str, functions: list[pci.Function], dev: str | None) -> list[Found]:
    """The Intel devices in the order of their addresses, each tile a device.

    `dev` is /dev, None for a snapshot.
    """
    return [
        device
        for function in functions
        if pci.is_graphics(function)
        and function.vendor == pci.INTEL
        and not function.address.startswith(PROCESSOR_GRAPHICS)
        for device in _tiles(root, function.address, dev)
    ]


def _tiles(root: str, address: str, dev: str | None) -> list[Found]:
    directory = f"{root}{pci.DEVICES}/{address}"
    minor = _render_minor(directory)
    usable = pci.may_open(dev, minor)
    count = _tile_count(directory)
    if count < 2:
        return [Found(address, VENDOR, "gpu", None, minor, None, usable)]
    return [Found(address, VENDOR, "tile", None, minor, tile, usable) for tile in range(count)]


def _tile_count(directory: str) -> int:
    count = _numbered(files.names(directory), "tile")
    for card in files.names(f"{directory}/drm"):
        if not count and card.startswith("card"):
            count = _numbered(files.names(f"{directory}/drm/{card}/gt"), "gt")
    return count


def _numbered(names: list[str], prefix: str) -> int:
    return sum(1 for name in names if name.startswith(prefix) and is_number(name[len(prefix) :]))


def _render_minor(directory: str) -> int | None:
    for name in files.names(f"{directory}/drm"):
        if name.startswith("renderD") and is_number(name[7:]):
            return int(name[7:])
    return None

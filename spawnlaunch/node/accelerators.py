"""Read accelerators that are no GPUs, Gaudi, Ascend and TPU, by one table.

This code was never run on such devices. It follows the sources below, and the tests run it on
directories that are laid out as these sources describe.

- Gaudi: Documentation/accel/introduction.rst of the kernel (/dev/accel/accel<N>, before 6.2
  /dev/hl<N>); "Multiple Workloads on a Single Docker" in the Gaudi documentation.
- Ascend: /dev/davinci<N>; ASCEND_RT_VISIBLE_DEVICES in CANN's reference of environment variables.
- TPU: the PCI ids of jax/_src/hardware_utils.py; TPU_VISIBLE_CHIPS of libtpu. A chip of the later
  kinds is reached through /dev/vfio/<N>, where N is the group of its IOMMU and not its number.
"""

from __future__ import annotations

import os

from spawnlaunch.base import records
from spawnlaunch.node import hardware, pci, sysfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


class Accelerator(records.NamedTuple):
    """A vendor's accelerators."""

    vendor: str
    pci_vendor: int
    pci_class: int
    files: tuple[str, ...]  # names below /dev, to which the device's number is added
    variable: str  # lists the devices that a process sees
    by_position: bool  # whether the variable counts devices in the order of their addresses


TABLE = (
    # Gaudi's runtime numbers modules by their place on the board, which the kernel does not show.
    Accelerator("habana", pci.HABANA, pci.ACCELERATOR, ("accel/accel", "hl"),
                "HABANA_VISIBLE_MODULES", False),
    Accelerator("huawei", pci.HUAWEI, pci.ACCELERATOR, ("davinci",),
                "ASCEND_RT_VISIBLE_DEVICES", True),
    Accelerator("google", pci.GOOGLE, pci.UNASSIGNED, ("accel",), "TPU_VISIBLE_CHIPS", True),
)  # fmt: skip
BY_VENDOR = {each.vendor: each for each in TABLE}


def read(bus: pci.Bus, dev: str | None) -> Iterator[hardware.Device]:
    """The accelerators of each vendor in turn, in the order of their addresses.

    `dev` is /dev, None for a snapshot. The N-th accelerator of a vendor has the N-th device file.
    """
    for kind in TABLE:
        numbers = None if dev is None else _numbers(dev, kind)
        own = (kind.pci_vendor, kind.pci_class)
        mine = [each for each in bus.functions if (each.vendor, each.pci_class) == own]
        for position, function in enumerate(mine):
            minor = numbers[position] if numbers and position < len(numbers) else None
            usable = None if not numbers else minor is not None and _may_open(dev, kind, minor)
            yield hardware.Device(0, function.address, kind.vendor, minor=minor, usable=usable)


def _numbers(dev: str | None, kind: Accelerator) -> list[int]:
    for stem in kind.files:
        directory, _, prefix = stem.rpartition("/")
        if found := sysfs.numbers(f"{dev}/{directory}".rstrip("/"), prefix):
            return found
    return []


def _may_open(dev: str | None, kind: Accelerator, minor: int) -> bool:
    paths = (f"{dev}/{stem}{minor}" for stem in kind.files)
    return any(os.access(path, os.R_OK | os.W_OK) for path in paths)

"""The devices of a node, of all vendors, in one order: that of their addresses.

Display adapters of other vendors (the ASPEED or Matrox part of a server's management controller)
are not devices, whatever their PCI class says.
"""

from spawnlaunch.cpuset import CpuSet
from spawnlaunch.node import amd, files, intel, nvidia, pci
from spawnlaunch.node.model import Device, Numa
from spawnlaunch.node.nvidia import Found


def read(
    root: str,
    functions: list[pci.Function],
    online: CpuSet,
    numa: tuple[Numa, ...],
    dev: str | None,
    warnings: list[str],
) -> tuple[Device, ...]:
    """The devices with their places; partitions of one address keep their runtime's order.

    `dev` is the directory of device files, None for a snapshot.
    """
    found = [
        *nvidia.read(root, functions, dev, warnings),
        *amd.read(root, functions, dev, warnings),
        *intel.read(root, functions, dev),
    ]
    ordinals = _ordinals(found)
    by_address = sorted(range(len(found)), key=lambda i: pci.order(found[i].address))
    places = {
        address: pci.place(root, address, online, numa)
        for address in {device.address for device in found}
    }
    lost = sorted(address for address, place in places.items() if place.local_cpus is None)
    if lost:
        warnings.append(
            f"the firmware does not say which CPUs are next to {', '.join(lost)} "
            "(numa_node is -1 or missing): their locality is unknown"
        )
    models = {a: files.text(f"{root}{pci.DEVICES}/{a}/device") for a in places}
    return tuple(
        Device(
            number=number,
            ordinal=ordinals[i],
            model=models[found[i].address],
            **places[found[i].address]._asdict(),
            **found[i]._asdict(),
        )
        for number, i in enumerate(by_address)
    )


def _ordinals(found: list[Found]) -> list[int | None]:
    """The runtime's numbers: it counts the devices of its vendor that it may open."""
    counters: dict[str, int] = {}
    ordinals: list[int | None] = []
    for device in found:
        if device.usable is False:
            ordinals.append(None)
            continue
        ordinals.append(counters.get(device.vendor, 0))
        counters[device.vendor] = counters.get(device.vendor, 0) + 1
    return ordinals

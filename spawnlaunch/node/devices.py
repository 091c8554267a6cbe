"""Read the devices of all vendors with their places, and the network adapters."""

from __future__ import annotations

import os

from spawnlaunch.node import hardware, pci, sysfs, vendors

# Classes of high-speed adapters: InfiniBand, RoCE and EFA in the first, Slingshot in the second.
_NIC_CLASSES = ("/sys/class/infiniband", "/sys/class/cxi")


def read(bus: pci.Bus, dev: str | None, warnings: list[str]) -> tuple[hardware.Device, ...]:
    """The devices in the order of their addresses; partitions of one keep their runtime's order.

    `dev` is the directory of device files, None for a snapshot. The runtime's numbers count the
    devices of its vendor that it may open.
    """
    found: list[hardware.Device] = []
    counts = dict.fromkeys(hardware.VENDORS, 0)
    for device in vendors.read(bus, dev, warnings):
        can_be_seen = device.usable is not False
        found.append(device._replace(ordinal=counts[device.vendor] if can_be_seen else None))
        counts[device.vendor] += can_be_seen
    found.sort(key=lambda device: pci.order(device.address))
    addresses = dict.fromkeys(device.address for device in found)
    places = {address: bus.place(address) for address in addresses}
    models = {each: sysfs.text(f"{bus.root}{pci.DEVICES}/{each}/device") for each in addresses}
    usable = dict.fromkeys(device.address for device in found if device.usable is not False)
    if lost := [address for address in usable if places[address][1] is None]:
        warnings.append(
            f"which CPUs are next to {', '.join(lost)} is not known (numa_node is -1, missing, or "
            "without CPUs here, or PCI does not show the device)"
        )
    for number, device in enumerate(found):
        numa, local_cpus = places[device.address]
        found[number] = device._replace(
            number=number, numa=numa, local_cpus=local_cpus, model=models[device.address]
        )
    return tuple(found)


def read_nics(bus: pci.Bus) -> tuple[hardware.Nic, ...]:
    """The high-speed network adapters in the order of their addresses.

    An adapter without a name from a driver (or with a class directory that a snapshot lacks) comes
    from the PCI bus, where its class or vendor leaves no doubt, and has its address as its name.
    """
    named = {
        os.path.basename(os.path.realpath(f"{bus.root}{directory}/{name}/device")): name
        for directory in _NIC_CLASSES
        for name in sorted(sysfs.names(bus.root + directory), reverse=True)
    }
    fast = {each for each in named if each.count(":") == 2 and pci.is_address(each)}
    for each in bus.functions:
        slingshot = (each.vendor, each.pci_class) == (pci.HPE, pci.ETHERNET)
        if slingshot or each.pci_class == pci.INFINIBAND:
            fast.add(each.address)
    return tuple(
        hardware.Nic(named.get(address, address), address, *bus.place(address))
        for address in sorted(fast, key=pci.order)
    )

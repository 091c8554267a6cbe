"""AMD devices, as the kernel's compute driver (KFD) numbers them, which is ROCm's order.

/sys/class/kfd/kfd/topology/nodes/<N>/properties, of which these lines are used:

    simd_count 440            0 for a CPU
    location_id 49408         bus << 8 | device << 3 | function, here c1:00.0
    domain 0
    drm_render_minor 128      /dev/dri/renderD128
    unique_id 5363462612...   the UUID in decimal; ROCm writes GPU- and 16 hexadecimal digits

Sources: drivers/gpu/drm/amd/amdkfd/kfd_topology.c of the kernel; "GPU isolation techniques" in the
ROCm documentation. Partitions of an MI300 are KFD nodes that share one PCI address: some kernels
write the partition into the function bits or above bit 28 of location_id, so a function that PCI
does not have means function 0. A node that the control group forbids cannot be read: its device is
on the PCI bus alone. Without KFD (a snapshot of sysfs may lack it) the compute classes of the PCI
bus are taken; a display adapter of class 0300 is not, for KFD alone knows whether ROCm can use it.
"""

from spawnlaunch.node import files, pci
from spawnlaunch.node.nvidia import Found
from spawnlaunch.reading import is_number

VENDOR = "amd"
KFD_NODES = "/sys/class/kfd/kfd/topology/nodes"


def read(
    root: str, functions: list[pci.Function], dev: str | None, warnings: list[str]
) -> list[Found]:
    """The AMD devices that ROCm can see, in ROCm's order; then those that it cannot.

    `dev` is /dev, None for a snapshot.
    """
    on_bus = [f for f in functions if pci.is_graphics(f) and f.vendor in (pci.AMD, None)]
    addresses = [function.address for function in on_bus]
    names = [name for name in files.names(root + KFD_NODES) if is_number(name)]
    driven = _kfd_devices(root, sorted(names, key=int), addresses, dev)
    seen = {device.address for device in driven}
    apart = [
        Found(f.address, VENDOR, "gpu", None, None, None, False if names else None)
        for f in on_bus
        if f.vendor == pci.AMD and f.pci_class != pci.VGA and f.address not in seen
    ]
    if apart and names:
        hidden = ", ".join(device.address for device in apart)
        warnings.append(f"AMD devices that this process may not use: {hidden}")
    return driven + apart


def _kfd_devices(root: str, nodes: list[str], addresses: list[str], dev: str | None) -> list[Found]:
    on_address: dict[str, list[dict[str, int]]] = {}
    in_order: list[tuple[str, int, dict[str, int]]] = []
    for node in nodes:
        properties = _properties(f"{root}{KFD_NODES}/{node}/properties")
        if not properties.get("simd_count"):
            continue
        address = _address(properties, addresses)
        partitions = on_address.setdefault(address, [])
        in_order.append((address, len(partitions), properties))
        partitions.append(properties)
    return [
        _device(dev, address, partition if len(on_address[address]) > 1 else None, properties)
        for address, partition, properties in in_order
    ]


def _properties(path: str) -> dict[str, int]:
    """Those that are numbers, of 64 bits without a sign at most."""
    return {name: int(value) for name, value in files.fields(path).items() if is_number(value, 20)}


def _address(properties: dict[str, int], addresses: list[str]) -> str:
    location = properties.get("location_id", 0)
    bus, device, function = location >> 8 & 0xFF, location >> 3 & 0x1F, location & 7
    slot = f"{properties.get('domain', 0):04x}:{bus:02x}:{device:02x}"
    exact = f"{slot}.{function}"
    return exact if exact in addresses else f"{slot}.0"


def _device(
    dev: str | None, address: str, partition: int | None, properties: dict[str, int]
) -> Found:
    minor = properties.get("drm_render_minor") or None
    unique = properties.get("unique_id")
    return Found(
        address=address,
        vendor=VENDOR,
        kind="gpu" if partition is None else "partition",
        uuid=f"GPU-{unique:016x}" if unique else None,
        minor=minor,
        partition=partition,
        usable=pci.may_open(dev, minor),
    )

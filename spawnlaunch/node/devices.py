"""Read the devices of all vendors with their places, and the network adapters.

They are read from the kernel's files, without a vendor's library. Each vendor's reader returns the
devices in the order in which the vendor's runtime counts them. `dev` is the directory of device
files, None for a snapshot, whose device files cannot be opened. Display adapters of other vendors
(the ASPEED or Matrox part of a server's management controller) are not devices, even with the PCI
class of one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from spawnlaunch.base import reading, records
from spawnlaunch.node import cpus, hardware, pci, sysfs

NVIDIA_DRIVER = "/proc/driver/nvidia"
OF_A_BOARD = ("nvhost-gpu", "nvgpu")  # the device files of a Tegra's GPU
KFD_NODES = "/sys/class/kfd/kfd/topology/nodes"  # of AMD's compute driver
PROCESSOR_GRAPHICS = "0000:00:02."  # of Intel
_COMPATIBLE = "/proc/device-tree/compatible"
_WSL_ADAPTER = 0x008E
# Classes of high-speed adapters: InfiniBand, RoCE and EFA in the first, Slingshot in the second.
_NIC_CLASSES = ("/sys/class/infiniband", "/sys/class/cxi")


def read(bus: pci.Bus, dev: str | None, warnings: list[str]) -> tuple[hardware.Device, ...]:
    """The devices in the order of their addresses; partitions of one keep their runtime's order.

    `dev` is the directory of device files, None for a snapshot. The runtime's numbers count the
    devices of its vendor that it may open.
    """
    result: list[hardware.Device] = []
    counts = dict.fromkeys(hardware.VENDORS, 0)
    for device in _of_all_vendors(bus, dev, warnings):
        is_visible = device.usable is not False
        result.append(device._replace(ordinal=counts[device.vendor] if is_visible else None))
        counts[device.vendor] += is_visible
    result.sort(key=lambda device: pci.order(device.address))
    addresses = dict.fromkeys(device.address for device in result)
    places = {address: bus.place(address) for address in addresses}
    models = {each: sysfs.text(f"{bus.root}{pci.DEVICES}/{each}/device") for each in addresses}
    usable = dict.fromkeys(device.address for device in result if device.usable is not False)
    if placeless := [address for address in usable if places[address][1] is None]:
        warnings.append(
            f"which CPUs are next to {', '.join(placeless)} is not known (numa_node is -1, "
            "missing, or without CPUs here, or PCI does not show the device)"
        )
    for number, device in enumerate(result):
        numa, local_cpus = places[device.address]
        result[number] = device._replace(
            number=number, numa=numa, local_cpus=local_cpus, model=models[device.address]
        )
    return tuple(result)


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


def _of_all_vendors(
    bus: pci.Bus, dev: str | None, warnings: list[str]
) -> Iterator[hardware.Device]:
    """Yield the devices of each vendor in turn; a snapshot may lack a vendor's id."""
    vendors = {function.vendor for function in bus.graphics}
    # The driver or device files may show NVIDIA devices that PCI does not show.
    nodes = sysfs.names(f"{bus.root}/dev")
    is_elsewhere = any(name.startswith(("nvidia", *OF_A_BOARD)) for name in nodes)
    is_elsewhere = is_elsewhere or bool(sysfs.names(bus.root + cpus.NVIDIA_GPUS))
    if is_elsewhere or vendors & {pci.NVIDIA, None}:
        yield from read_nvidia(bus, dev)
    if pci.AMD in vendors or os.path.isdir(bus.root + KFD_NODES):
        yield from read_amd(bus, dev, warnings)
    if pci.INTEL in vendors:
        yield from read_intel(bus, dev)
    if {function.vendor for function in bus.functions} & {pci.HABANA, pci.HUAWEI, pci.GOOGLE}:
        yield from read_accelerators(bus, dev)


def _may_open(dev: str | None, *files: str) -> bool | None:
    """Whether this process may open one of these files below `dev`; None: not known.

    access(2) checks the control group too (inode_permission in fs/namei.c of the kernel), without
    opening the device, which would wake a sleeping one.
    """
    if dev is None:
        return None
    return any(os.access(f"{dev}/{file}", os.R_OK | os.W_OK) for file in files)


# NVIDIA


def read_nvidia(bus: pci.Bus, dev: str | None) -> list[hardware.Device]:
    """The NVIDIA devices in the order of their addresses, or of their minors without addresses.

    With CUDA_DEVICE_ORDER=PCI_BUS_ID the runtime counts by address. The driver has files
    /proc/driver/nvidia/gpus/0000:c1:00.0/information, of which these lines are used:

        GPU UUID:        GPU-029490c8-a116-638b-7018-1a6b7a9002ef
        Device Minor:    0

    A container shows every device of the host in sysfs, but only its own as /dev/nvidia<minor>
    (and, with NVIDIA's own container tools, only its own below /proc/driver/nvidia/gpus). A control
    group leaves the files there and forbids their use.

    A sandbox without /sys/bus/pci has devices too, which the driver or only the device files show.
    The GPU of a Tegra board is on no bus: /dev/nvidia0, or /dev/nvhost-gpu and /dev/nvgpu.
    """
    base = bus.root + cpus.NVIDIA_GPUS
    # The driver may write an address in capitals, and sysfs never does.
    driven = {name.lower(): f"{base}/{name}/information" for name in sysfs.names(base)}
    directory = dev or f"{bus.root}/dev"
    minors = sysfs.numbers(directory, "nvidia")
    # A snapshot may lack the device files, and a driver that is loaded may not have made them yet.
    are_missing = not minors and dev is not None and not os.path.isdir(bus.root + NVIDIA_DRIVER)
    on_bus = [
        function.address
        for function in bus.graphics
        if function.vendor == pci.NVIDIA or function.address in driven
        if not driven or function.address in driven or _is_hidden(bus, function)
    ]
    result = []
    for address in sorted(sorted({*on_bus, *driven}), key=pci.order):
        lines = sysfs.fields(driven[address], ":") if address in driven else {}
        uuid, text = lines.get("GPU UUID", ""), lines.get("Device Minor", "")
        minor = int(text) if reading.is_number(text) else None
        usable: bool | None = None
        if are_missing or (driven and address not in driven):
            usable = False
        elif minor is not None and minors:
            usable = _may_open(dev, f"nvidia{minor}") if minor in minors else False
        uuid = uuid if uuid.startswith("GPU-") and "?" not in uuid else ""
        result.append(
            hardware.Device(0, address, "nvidia", uuid=uuid or None, minor=minor, usable=usable)
        )
    if result:
        return result
    if minors:
        return [
            hardware.Device(0, f"/dev/nvidia{minor}", "nvidia", minor=minor,
                            usable=_may_open(dev, f"nvidia{minor}"))
            for minor in minors
        ]  # fmt: skip
    files = [name for name in OF_A_BOARD if os.path.exists(f"{directory}/{name}")]
    return [hardware.Device(0, f"/dev/{name}", "nvidia") for name in files[:1]]


def _is_hidden(bus: pci.Bus, function: pci.Function) -> bool:
    """Whether the driver may serve a function that its files do not show, as in a container.

    If not, it is no device: a display card that the driver no longer supports, or one that is given
    to a virtual machine.
    """
    driver = bus.driver(function.address)
    return driver == "nvidia" if driver else function.pci_class != pci.VGA


def why_none(root: str) -> str:
    """Why no device is found on a machine where CUDA may still see some; "": nothing shows any.

    WSL2 shows no GPU in /sys: there is /dev/dxg, and on the PCI bus an adapter of Microsoft
    (1414:008e), which snapshots (`root`: its directory) show. A Tegra board (`nvidia,tegra` in
    /proc/device-tree/compatible, a file of words that end in a zero byte) and a loaded driver have
    device files, but a container may not have been given them.
    """
    root = root.rstrip("/")
    is_wsl = os.path.exists(f"{root}/dev/dxg") or any(
        sysfs.number(f"{root}{pci.DEVICES}/{each.address}/device") == _WSL_ADAPTER
        for each in (pci.read_functions(root, network=False) if root else ())
        if each.vendor == pci.MICROSOFT
    )
    if is_wsl:
        return (
            "this is WSL, which shows no NVIDIA device in /sys, nor another GPU, so nothing here "
            "counts them"
        )
    words = (sysfs.text(root + _COMPATIBLE) or "").split("\0")
    if board := next((word for word in words if word.startswith("nvidia,tegra")), ""):
        files = ", ".join(f"/dev/{name}" for name in ("nvidia0", *OF_A_BOARD))
        return f"this is a Tegra board ({board}), and none of {files} is here"
    for place in (NVIDIA_DRIVER, "/dev/nvidiactl"):
        if os.path.exists(root + place):
            return f"an NVIDIA driver is loaded ({place}), and no /dev/nvidia<N> is here"
    return ""


# AMD


def read_amd(bus: pci.Bus, dev: str | None, warnings: list[str]) -> list[hardware.Device]:
    """The AMD devices that ROCm can see, in ROCm's order, then the other AMD devices.

    ROCm's order is that of the kernel's compute driver (KFD). A node that the control group forbids
    cannot be read: only the PCI bus shows its device. Without KFD (a snapshot of sysfs may lack it)
    the functions of compute classes on the PCI bus are the devices; a display adapter of class 0300
    is none, as only KFD knows whether ROCm can use it.
    """
    on_bus = [f for f in bus.graphics if f.vendor in (pci.AMD, None)]
    nodes = sysfs.numbers(bus.root + KFD_NODES, "")
    driven = _of_kfd(bus.root, nodes, {f.address for f in on_bus}, dev)
    of_kfd = {device.address for device in driven}
    apart = [
        hardware.Device(0, f.address, "amd", usable=False if nodes or dev else None)
        for f in on_bus
        if f.vendor == pci.AMD and f.pci_class != pci.VGA and f.address not in of_kfd
    ]
    if apart and driven:
        hidden = ", ".join(device.address for device in apart)
        warnings.append(f"AMD devices that this process may not use: {hidden}")
    return driven + apart


def _of_kfd(
    root: str, nodes: list[int], addresses: set[str], dev: str | None
) -> list[hardware.Device]:
    """The devices that KFD shows; several devices with one address are its partitions.

    They are in /sys/class/kfd/kfd/topology/nodes/<N>/properties, of which these lines are used:

        simd_count 440            0 for a CPU
        location_id 49408         bus << 8 | device << 3 | function, here c1:00.0
        domain 0
        drm_render_minor 128      /dev/dri/renderD128
        unique_id 5363462612...   the UUID in decimal; ROCm writes GPU- and 16 hexadecimal digits

    Sources: drivers/gpu/drm/amd/amdkfd/kfd_topology.c of the kernel; "GPU isolation techniques" in
    the ROCm documentation. Partitions of an MI300 are KFD nodes that share one PCI address: some
    kernels write the partition into the function bits or above bit 28 of location_id, so a function
    that PCI does not have means function 0.
    """
    result: list[hardware.Device] = []
    for node in nodes:
        lines = sysfs.fields(f"{root}{KFD_NODES}/{node}/properties").items()
        properties = {name: int(text) for name, text in lines if reading.is_number(text, 20)}
        if not properties.get("simd_count"):
            continue
        minor, unique = properties.get("drm_render_minor") or None, properties.get("unique_id")
        place = properties.get("location_id", 0)
        slot = f"{properties.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}"
        exact = f"{slot}.{place & 7}"
        address = exact if exact in addresses else f"{slot}.0"
        result.append(
            hardware.Device(
                0, address, "amd", uuid=f"GPU-{unique:016x}" if unique else None, minor=minor,
                partition=sum(1 for other in result if other.address == address),
                usable=None if minor is None else _may_open(dev, f"dri/renderD{minor}"),
            )
        )  # fmt: skip
    several = {device.address for device in result if device.partition}
    return [
        device._replace(kind="partition")
        if device.address in several
        else device._replace(partition=None)
        for device in result
    ]


# Intel


def read_intel(bus: pci.Bus, dev: str | None) -> list[hardware.Device]:
    """The Intel devices in the order of their addresses, each tile a device.

    Only discrete parts count: a display controller of Intel is one unless it is the graphics of the
    processor, which is always 0000:00:02 (Documentation/gpu/vgaarbiter.rst and the i915 driver).
    The neural unit of a laptop's processor is a PCI accelerator (drivers/accel/ivpu) and no device.
    A Data Center GPU Max is one PCI function with two tiles, each a device of its own in the
    runtime's default FLAT hierarchy (ZE_FLAT_DEVICE_HIERARCHY in the Level Zero specification). The
    drivers make a render node of each function that they serve, and show tiles as

        <PCI function>/tile0, tile1              xe
        <PCI function>/drm/card0/gt/gt0, gt1     i915
    """
    result: list[hardware.Device] = []
    for function in bus.graphics:
        address = function.address
        if function.vendor != pci.INTEL or function.pci_class == pci.ACCELERATOR:
            continue
        if address.startswith(PROCESSOR_GRAPHICS):
            continue
        directory = f"{bus.root}{pci.DEVICES}/{address}"
        minor = next(iter(sysfs.numbers(f"{directory}/drm", "renderD")), None)
        usable = None if minor is None else _may_open(dev, f"dri/renderD{minor}")
        whole = hardware.Device(0, address, "intel", minor=minor, usable=usable)
        cards = [card for card in sysfs.names(f"{directory}/drm") if card.startswith("card")]
        counts = [len(sysfs.numbers(f"{directory}/drm/{card}/gt", "gt")) for card in cards]
        tiles = max(len(sysfs.numbers(directory, "tile")), *counts, 0)
        parts = [whole._replace(kind="tile", partition=i) for i in range(tiles)]
        result += parts if tiles > 1 else [whole]
    # A snapshot may have no file of a driver.
    are_shown = dev is not None or any(device.minor is not None for device in result)
    return [device for device in result if device.minor is not None or not are_shown]


# Accelerators that are no GPUs: Gaudi, Ascend and TPU
#
# This code was never run on such devices. It follows the sources below, and the tests run it on
# directories that are laid out as these sources describe.
#
# - Gaudi: Documentation/accel/introduction.rst of the kernel (/dev/accel/accel<N>, before 6.2
#   /dev/hl<N>); "Multiple Workloads on a Single Docker" in the Gaudi documentation.
# - Ascend: /dev/davinci<N>; ASCEND_RT_VISIBLE_DEVICES in CANN's reference of environment variables.
# - TPU: the PCI ids of jax/_src/hardware_utils.py; TPU_VISIBLE_CHIPS of libtpu. A chip of the later
#   kinds is reached through /dev/vfio/<N>, where N is the group of its IOMMU and not its number.


class Accelerator(records.NamedTuple):
    """A vendor's accelerators."""

    vendor: str
    pci_vendor: int
    pci_class: int
    files: tuple[str, ...]  # names below /dev, to which the device's number is added
    variable: str  # lists the devices that a process sees
    by_position: bool  # whether the variable counts devices in the order of their addresses


ACCELERATORS = (
    # Gaudi's runtime numbers modules by their place on the board, which the kernel does not show.
    Accelerator("habana", pci.HABANA, pci.ACCELERATOR, ("accel/accel", "hl"),
                "HABANA_VISIBLE_MODULES", False),
    Accelerator("huawei", pci.HUAWEI, pci.ACCELERATOR, ("davinci",),
                "ASCEND_RT_VISIBLE_DEVICES", True),
    Accelerator("google", pci.GOOGLE, pci.UNASSIGNED, ("accel",), "TPU_VISIBLE_CHIPS", True),
)  # fmt: skip
BY_VENDOR = {each.vendor: each for each in ACCELERATORS}


def read_accelerators(bus: pci.Bus, dev: str | None) -> Iterator[hardware.Device]:
    """The accelerators of each vendor in turn, in the order of their addresses.

    The N-th accelerator of a vendor has the N-th device file.
    """
    for kind in ACCELERATORS:
        numbers: list[int] = []
        for file in kind.files if dev else ():
            directory, _, prefix = f"{dev}/{file}".rpartition("/")
            numbers = numbers or sysfs.numbers(directory, prefix)
        ids = (kind.pci_vendor, kind.pci_class)
        mine = [each for each in bus.functions if (each.vendor, each.pci_class) == ids]
        for position, function in enumerate(mine):
            minor, usable = None, False if numbers else None
            if position < len(numbers):
                minor = numbers[position]
                usable = _may_open(dev, *(f"{file}{minor}" for file in kind.files))
            yield hardware.Device(0, function.address, kind.vendor, minor=minor, usable=usable)

"""Lays out /sys and /proc of a machine below a directory, from a few facts about it."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from spawnlaunch import node as nodes
from spawnlaunch.base import cpuset
from spawnlaunch.node import Node, pci

NVIDIA, AMD, INTEL, ASPEED, INFINIBAND = "nvidia", "amd", "intel", "aspeed", "infiniband"
# PCI vendor and class of each kind of function.
KINDS = {
    NVIDIA: (pci.NVIDIA, 0x030200),
    "nvidia vga": (pci.NVIDIA, 0x030000),
    AMD: (pci.AMD, 0x038000),
    INTEL: (pci.INTEL, 0x038000),
    ASPEED: (0x1A03, 0x030000),
    "coprocessor": (pci.INTEL, 0x0B4000),
    INFINIBAND: (0x15B3, 0x020700),
    "slingshot": (pci.HPE, 0x020000),
    "efa": (0x1D0F, 0x020000),
    "bridge": (pci.INTEL, 0x060400),
}
MEMORY_KIB = 131573308
# A tree has a thousand files, which cost ten times as much on a disk.
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Gpu(NamedTuple):
    """A PCI function that is a device, or several of them; or one that is no device at all."""

    numa: int  # -1: the firmware does not say
    cpus: str  # local_cpulist
    address: str | None = None  # None: one is invented from the position
    vendor: str = NVIDIA  # or another of KINDS
    parts: int = 1  # partitions (AMD) or tiles (Intel)
    model: int = 0x20B0
    memory_node: int | None = None  # the NUMA node that is its memory
    minor: int | None = None  # of its device file, where the driver does not count by position
    driver: str | None = None  # what the kernel's link names; "": nothing serves it; None: no link


class Machine(NamedTuple):
    """The facts about a machine, and where they are from. CPUs are lists as the kernel's."""

    name: str
    source: str
    cores: tuple[str, ...]  # the hardware threads of each core
    numa: dict[int, str]  # CPUs of each NUMA node; empty for one that has memory alone
    l3: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    offline: str = ""  # CPUs that are present and switched off
    reserved: str = ""  # CPUs that the site keeps from jobs
    memory_kib: Mapping[int, int] = MappingProxyType({})  # of NUMA nodes that differ
    distances: Mapping[int, str] = MappingProxyType({})  # rows of NUMA nodes that differ
    adapters: Mapping[str, str] = MappingProxyType({})  # name of a driver: PCI address
    # By the name of a file below cpu<N>, such as cpu_capacity: what stands in it, by the CPUs.
    of_cpus: Mapping[str, Mapping[str, object]] = MappingProxyType({})
    files: Mapping[str, str] = MappingProxyType({})  # others, such as limits of control groups
    without: tuple[str, ...] = ()  # patterns of files that this kernel or driver does not show


def cores(count: int, threads: int = 1, first: int = 0) -> tuple[str, ...]:
    """Cores as most machines number them: all first threads, then all second ones."""
    return tuple(
        cpuset.format(first + core + thread * count for thread in range(threads))
        for core in range(count)
    )


def build(root: Path, machine: Machine, bystanders: int = 0) -> Path:
    """Write the machine below `root`, with that many other PCI functions; the result is `root`."""
    every = cpuset.EMPTY.union(*map(cpuset.parse, machine.cores))
    online = every - cpuset.parse(machine.offline)
    _write_cpus(root / "sys/devices/system/cpu", machine, online, every)
    _write_numa(root / "sys/devices/system/node", machine, online)
    bridges = [Gpu(0, "0", f"0000:00:{i % 32:02x}.{i // 32 % 8}", "bridge", model=0)
               for i in range(bystanders)]  # fmt: skip
    for i, gpu in enumerate((*machine.gpus, *bridges)):
        directory = root / pci.DEVICES[1:] / (gpu.address or address(machine, i))
        _write_function(directory, gpu)
    _write_nvidia(root / "proc/driver/nvidia/gpus", machine)
    _write_kfd(root / "sys/class/kfd/kfd/topology/nodes", machine)
    for name, where in machine.adapters.items():
        _write_adapter(root, name, where)
    for file, text in machine.files.items():
        write(root / file, text)
    for pattern in machine.without:
        for path in root.glob(pattern):
            path.unlink()
    return root


class Trees(dict[str, Path]):
    """The directories of machines by name; each is built when it is asked for."""

    def __init__(self, into: Path, named: dict[str, Machine]) -> None:
        super().__init__()
        self._into, self._named = into, named

    def __missing__(self, name: str) -> Path:
        self[name] = build(self._into / name, self._named[name])
        return self[name]


def node_of(machine: Machine) -> Node:
    """The machine as it is read from its tree, which is made once and taken away again."""
    key = repr(machine)
    if key not in _read:
        with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
            _read[key] = nodes.read(str(build(Path(folder), machine)))
    return _read[key]


_read: dict[str, Node] = {}


def address(machine: Machine, i: int) -> str:
    """The PCI address of the machine's i-th GPU."""
    return machine.gpus[i].address or f"{i // 200:04x}:{0x10 + i % 200:02x}:00.0"


def write(path: Path, text: object) -> None:
    """Write a file as the kernel does, with its directories."""
    try:
        file = path.open("w")
    except FileNotFoundError:
        path.parent.mkdir(parents=True)
        file = path.open("w")
    with file:
        file.write(f"{text}\n")


def _write_cpus(base: Path, machine: Machine, online: cpuset.CpuSet, every: cpuset.CpuSet) -> None:
    write(base / "online", cpuset.format(online))
    write(base / "present", cpuset.format(every))
    for listed, mask, groups in (
        ("topology/thread_siblings_list", "topology/thread_siblings", machine.cores),
        ("topology/core_siblings_list", "topology/core_siblings", machine.packages),
        ("cache/index3/shared_cpu_list", "cache/index3/shared_cpu_map", machine.l3),
    ):
        for group in groups:
            members = cpuset.parse(group) & online
            for cpu in members:
                write(base / f"cpu{cpu}" / listed, cpuset.format(members))
                if _shows_masks(machine):
                    write(base / f"cpu{cpu}" / mask, _mask(members))
                if listed.startswith("cache"):
                    write(base / f"cpu{cpu}/cache/index3/level", 3)
    for file, values in machine.of_cpus.items():
        for cpus, value in values.items():
            for cpu in cpuset.parse(cpus) & online:
                write(base / f"cpu{cpu}" / file, value)


def _shows_masks(machine: Machine) -> bool:
    """Whether a reader needs the masks, since lists are missing."""
    return any(pattern.endswith("list") for pattern in machine.without)


def _mask(cpus: cpuset.CpuSet) -> str:
    """A mask as the kernel writes it: words of 32 bits, the highest first."""
    bits, words = sum(1 << cpu for cpu in cpus), max(cpus, default=0) // 32 + 1
    return ",".join(f"{bits >> 32 * word & 0xFFFFFFFF:08x}" for word in reversed(range(words)))


def _write_numa(base: Path, machine: Machine, online: cpuset.CpuSet) -> None:
    write(base / "online", cpuset.format(machine.numa))
    for node, cpus in machine.numa.items():
        directory, members = base / f"node{node}", cpuset.parse(cpus) & online
        row = " ".join("10" if other == node else "20" for other in machine.numa)
        write(directory / "cpulist", cpuset.format(members))
        if _shows_masks(machine):
            write(directory / "cpumap", _mask(members))
        total = machine.memory_kib.get(node, MEMORY_KIB)
        write(directory / "meminfo", f"Node {node} MemTotal:       {total} kB")
        write(directory / "distance", machine.distances.get(node, row))


def _write_function(directory: Path, gpu: Gpu) -> None:
    vendor, pci_class = KINDS[gpu.vendor]
    write(directory / "class", f"{pci_class:#08x}")
    write(directory / "vendor", f"{vendor:#06x}")
    write(directory / "device", f"{gpu.model:#06x}")
    write(directory / "numa_node", gpu.numa)
    write(directory / "local_cpulist", gpu.cpus)
    write(directory / "local_cpus", _mask(cpuset.parse(gpu.cpus)))
    if gpu.driver:
        (directory / "driver").symlink_to(f"../../drivers/{gpu.driver}")
    if gpu.vendor == INTEL:
        for tile in range(gpu.parts):  # as the xe driver shows them
            (directory / f"tile{tile}").mkdir()
        if gpu.minor is not None:
            write(directory / f"drm/renderD{gpu.minor}/dev", "")


def _write_nvidia(base: Path, machine: Machine) -> None:
    for i, gpu in enumerate(machine.gpus):
        if KINDS[gpu.vendor][0] == pci.NVIDIA and gpu.driver in (None, "nvidia"):
            directory = base / address(machine, i)
            uuid = f"GPU-{i:08x}-0000-0000-0000-000000000000"
            minor = i if gpu.minor is None else gpu.minor
            information = f"Model: \t\t Test\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}"
            write(directory / "information", information)
            if gpu.memory_node is not None:
                status = f"Node:      {gpu.memory_node}\nStatus:    online"
                write(directory / "numa_status", status)


def _write_kfd(base: Path, machine: Machine) -> None:
    """KFD nodes: one for each package, which is no device, and one for each partition."""
    amd = [i for i, gpu in enumerate(machine.gpus) if gpu.vendor == AMD]
    if not amd:
        return
    found: list[Sequence[tuple[str, int]]] = [
        (("cpu_cores_count", 64), ("simd_count", 0), ("location_id", 0))
        for _ in machine.packages or ("",)
    ]
    for i in amd:
        domain, bus, rest = address(machine, i).split(":")
        location = int(bus, 16) << 8 | int(rest.split(".")[0], 16) << 3
        for part in range(machine.gpus[i].parts):
            minor, unique = machine.gpus[i].minor or 128 + len(found), 0xABC0 + i
            found.append(
                (
                    ("simd_count", 440),
                    ("location_id", location | part << 28),
                    ("domain", int(domain, 16)),
                    ("drm_render_minor", minor),
                    ("unique_id", unique),
                )
            )
    for number, properties in enumerate(found):
        text = "\n".join(f"{name} {value}" for name, value in properties)
        write(base / str(number) / "properties", text)


def _write_adapter(root: Path, name: str, where: str) -> None:
    """What a driver calls a PCI function, or a device elsewhere below /sys/devices."""
    named = root / "sys/class/infiniband" / name
    device = root / (f"{pci.DEVICES[1:]}/{where}" if ":" in where else f"sys/devices/{where}")
    device.mkdir(parents=True, exist_ok=True)
    named.mkdir(parents=True)
    (named / "device").symlink_to(device)

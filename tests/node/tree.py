"""Lays out /sys and /proc of a machine below a directory, from a few facts about it."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from spawnlaunch import cpuset
from spawnlaunch import node as nodes
from spawnlaunch.node import Node

NVIDIA, AMD, INTEL, ASPEED, MELLANOX = 0x10DE, 0x1002, 0x8086, 0x1A03, 0x15B3
CLASSES = {NVIDIA: 0x030200, AMD: 0x038000, INTEL: 0x038000, ASPEED: 0x030000, MELLANOX: 0x020700}


class Gpu(NamedTuple):
    """A PCI function that is a device, or several of them."""

    numa: int  # -1: the firmware does not say
    cpus: str  # local_cpulist
    address: str | None = None  # None: one is invented from the position
    vendor: int = NVIDIA
    parts: int = 1  # partitions (AMD) or tiles (Intel)
    model: int = 0x20B0


class Machine(NamedTuple):
    """The facts about a machine, and where they are from."""

    name: str
    source: str
    cores: tuple[str, ...]  # the hardware threads of each core
    numa: dict[int, str]  # CPUs of each NUMA node; empty for one that has memory alone
    l3: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    offline: str = ""  # CPUs that are present and switched off


def cores(count: int, threads: int = 1, first: int = 0) -> tuple[str, ...]:
    """Cores as most machines number them: all first threads, then all second ones."""
    return tuple(
        cpuset.format(first + core + thread * count for thread in range(threads))
        for core in range(count)
    )


def build(root: Path, machine: Machine, bystanders: int = 0) -> Path:
    """Write the machine below `root`, with that many other PCI functions; the result is `root`."""
    off = cpuset.parse(machine.offline)
    every = frozenset().union(*(cpuset.parse(core) for core in machine.cores))
    _cpus(root / "sys/devices/system/cpu", machine, every - off, every)
    _numa(root / "sys/devices/system/node", machine, every - off)
    functions = _functions(machine)
    for i in range(bystanders):
        functions.append((f"0000:00:{i % 32:02x}.{i // 32 % 8}", 0x8086, 0x060400, "0", 0, 0))
    for function in functions:
        _pci(root / "sys/bus/pci/devices", *function)
    _nvidia(root / "proc/driver/nvidia/gpus", machine)
    _kfd(root / "sys/class/kfd/kfd/topology/nodes", machine)
    return root


def node_of(machine: Machine) -> Node:
    """The machine as it is read from its tree, which is made once and taken away again."""
    key = repr(machine)
    if key not in _read:
        with tempfile.TemporaryDirectory() as folder:
            root = build(Path(folder), machine)
            add_tiles(root, machine)
            _read[key] = nodes.read(str(root))
    return _read[key]


_read: dict[str, Node] = {}


def address(machine: Machine, i: int) -> str:
    """The PCI address of the machine's i-th GPU."""
    return machine.gpus[i].address or f"{i // 200:04x}:{0x10 + i % 200:02x}:00.0"


def write(path: Path, text: object) -> None:
    """Write a file as the kernel does, with its directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def _cpus(base: Path, machine: Machine, online: frozenset[int], every: frozenset[int]) -> None:
    write(base / "online", cpuset.format(online))
    write(base / "present", cpuset.format(every))
    for kind, groups in (
        ("topology/thread_siblings_list", machine.cores),
        ("topology/core_siblings_list", machine.packages),
        ("cache/index3/shared_cpu_list", machine.l3),
    ):
        for group in groups:
            members = cpuset.parse(group) & online
            for cpu in members:
                write(base / f"cpu{cpu}" / kind, cpuset.format(members))
                if kind.startswith("cache"):
                    write(base / f"cpu{cpu}/cache/index3/level", 3)


def _numa(base: Path, machine: Machine, online: frozenset[int]) -> None:
    write(base / "online", cpuset.format(machine.numa))
    for node, cpus in machine.numa.items():
        directory = base / f"node{node}"
        write(directory / "cpulist", cpuset.format(cpuset.parse(cpus) & online))
        write(directory / "meminfo", f"Node {node} MemTotal:       131573308 kB")
        write(directory / "distance", " ".join("10" if o == node else "20" for o in machine.numa))


def _functions(machine: Machine) -> list[tuple[str, int, int, str, int, int]]:
    return [
        (address(machine, i), gpu.vendor, CLASSES[gpu.vendor], gpu.cpus, gpu.numa, gpu.model)
        for i, gpu in enumerate(machine.gpus)
    ]


def _pci(base: Path, where: str, vendor: int, code: int, cpus: str, numa: int, model: int) -> None:
    directory = base / where
    write(directory / "class", f"{code:#08x}")
    write(directory / "vendor", f"{vendor:#06x}")
    write(directory / "device", f"{model:#06x}")
    write(directory / "numa_node", numa)
    write(directory / "local_cpulist", cpus)


def _nvidia(base: Path, machine: Machine) -> None:
    for i, gpu in enumerate(machine.gpus):
        if gpu.vendor == NVIDIA:
            uuid = f"GPU-{i:08x}-0000-0000-0000-000000000000"
            information = f"Model: \t\t Test\nGPU UUID: \t {uuid}\nDevice Minor: \t {i}"
            write(base / address(machine, i) / "information", information)


def _kfd(base: Path, machine: Machine) -> None:
    """KFD nodes: one for each package, which is no device, and one for each partition."""
    amd = [i for i, gpu in enumerate(machine.gpus) if gpu.vendor == AMD]
    if not amd:
        return
    nodes: list[Sequence[tuple[str, int]]] = [
        (("cpu_cores_count", 64), ("simd_count", 0), ("location_id", 0))
        for _ in machine.packages or ("",)
    ]
    for i in amd:
        domain, bus, rest = address(machine, i).split(":")
        location = int(bus, 16) << 8 | int(rest.split(".")[0], 16) << 3
        for part in range(machine.gpus[i].parts):
            minor, unique = 128 + len(nodes), 0xABC0 + i
            nodes.append(
                (
                    ("simd_count", 440),
                    ("location_id", location | part << 28),
                    ("domain", int(domain, 16)),
                    ("drm_render_minor", minor),
                    ("unique_id", unique),
                )
            )
    for number, properties in enumerate(nodes):
        text = "\n".join(f"{name} {value}" for name, value in properties)
        write(base / str(number) / "properties", text)


def add_tiles(root: Path, machine: Machine) -> None:
    """The tiles of Intel devices, as the xe driver shows them."""
    for i, gpu in enumerate(machine.gpus):
        for tile in range(gpu.parts if gpu.vendor == INTEL else 0):
            directory = root / "sys/bus/pci/devices" / address(machine, i) / f"tile{tile}"
            directory.mkdir(parents=True)

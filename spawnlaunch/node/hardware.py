"""What a machine is: frozen records, filled by the readers beside this file.

An empty tuple or None means "not known" and never "none of them", except where a field says so.
"""

from __future__ import annotations

from spawnlaunch import cpuset, records


class Numa(records.NamedTuple):
    """A NUMA node of the kernel."""

    id: int
    cpus: cpuset.CpuSet  # online CPUs; empty where the node has memory alone
    memory: int | None  # bytes
    distances: tuple[tuple[int, int], ...]  # (NUMA node, distance), 10 being the node itself
    kind: str  # "cpu", "gpu" (the memory of a device), "memory" (no CPUs) or "empty"


class Device(records.NamedTuple):
    """A device that a rank can own: a GPU, a partition of one, or a tile."""

    number: int  # among all devices of the node, in the order of their addresses
    address: str  # PCI, as sysfs writes it: 0000:c1:00.0; shared by partitions and by tiles
    vendor: str  # "nvidia", "amd", "intel", "habana", "huawei" or "google"
    kind: str = "gpu"  # or "partition" or "tile"
    ordinal: int | None = None  # the number that the vendor's runtime gives it; None: not seen
    numa: int | None = None  # NUMA node; None: the firmware does not name it
    local_cpus: cpuset.CpuSet | None = None  # online CPUs next to the device; None: not known
    uuid: str | None = None  # "GPU-..." as CUDA_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES take it
    minor: int | None = None  # /dev/nvidia<minor> or /dev/dri/renderD<minor>
    partition: int | None = None  # which partition or tile of its address
    model: str | None = None  # PCI device id, such as 0x20b0
    usable: bool | None = None  # whether this process may open it; None: not known


class Nic(records.NamedTuple):
    """A high-speed network adapter. --explain shows it; no decision depends on it."""

    name: str
    address: str
    numa: int | None
    local_cpus: cpuset.CpuSet | None


class Node(records.NamedTuple):
    """One machine, as far as it could be read; `warnings` has a line for each thing that could not.

    `cores`, `l3` and `packages` are disjoint groups of online CPUs, each ordered by the lowest CPU;
    each online CPU is in a core.
    """

    cpus_allowed: cpuset.CpuSet  # what may be used; empty where there are no masks, as on macOS
    cpus_online: cpuset.CpuSet
    cores: tuple[cpuset.CpuSet, ...]  # the hardware threads of each physical core
    # Of the control group's cpuset; None: the mask is all of it.
    cpus_cgroup: cpuset.CpuSet | None = None
    l3: tuple[cpuset.CpuSet, ...] = ()
    packages: tuple[cpuset.CpuSet, ...] = ()
    numa: tuple[Numa, ...] = ()  # ordered by id
    memory_nodes: frozenset[int] = cpuset.EMPTY  # NUMA nodes that this process may allocate from
    devices: tuple[Device, ...] = ()  # in the order of `number`; empty: there are none
    nics: tuple[Nic, ...] = ()
    warnings: tuple[str, ...] = ()

"""The frozen records of a machine, which the readers beside this file fill.

An empty tuple or None means "not known" and never "none of them", except where a field says so.
"""

from __future__ import annotations

from spawnlaunch.base import cpuset, records

# In the order in which workers use them, where a node has devices of several.
VENDORS = ("nvidia", "amd", "intel", "habana", "huawei", "google")


class Numa(records.NamedTuple):
    """A NUMA node of the kernel."""

    id: int
    cpus: cpuset.CpuSet  # online CPUs; empty where the node has memory only
    memory: int | None  # bytes
    distances: tuple[tuple[int, int], ...]  # (NUMA node, distance), 10 being the node itself
    kind: str  # "cpu", "gpu" (the memory of a device), "memory" (no CPUs) or "empty"


class Device(records.NamedTuple):
    """A device that a rank can own: a GPU, a partition of one, or a tile."""

    number: int  # among all devices of the node, in the order of their addresses
    # The PCI address as sysfs writes it, 0000:c1:00.0; partitions and tiles share one. Where no
    # address is known, the device file: /dev/nvidia0.
    address: str
    vendor: str  # one of VENDORS
    kind: str = "gpu"  # or "partition" or "tile"
    ordinal: int | None = None  # its number in the vendor's runtime; None: it sees no such device
    numa: int | None = None  # NUMA node; None: the firmware does not name it
    local_cpus: cpuset.CpuSet | None = None  # online CPUs next to the device; None: not known
    uuid: str | None = None  # "GPU-..." as CUDA_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES take it
    minor: int | None = None  # /dev/nvidia<minor> or /dev/dri/renderD<minor>
    partition: int | None = None  # which partition or tile of its address
    model: str | None = None  # PCI device id, such as 0x20b0
    usable: bool | None = None  # whether this process may open it; None: not known


class Kind(records.NamedTuple):
    """Cores of one speed."""

    name: str  # the property that they share: "cpu_core", "cpu_atom", "capacity 1024", "4800 MHz"
    cpus: cpuset.CpuSet


class Nic(records.NamedTuple):
    """A high-speed network adapter. --explain shows it; no decision depends on it."""

    name: str
    address: str
    numa: int | None
    local_cpus: cpuset.CpuSet | None


class Quota(records.NamedTuple):
    """A quota of CPU time: the kernel throttles a control group that has used its quota up."""

    cpus: float  # the quota as a number of CPUs
    path: str  # of the file with the quota


class Node(records.NamedTuple):
    """The readable facts of one machine; `warnings` has a line for each one that is missing.

    `cores`, `l3` and `packages` are disjoint groups of online CPUs, each ordered by the lowest CPU;
    each online CPU is in a core.
    """

    cpus_allowed: cpuset.CpuSet  # the usable CPUs; empty where there are no masks, as on macOS
    cpus_online: cpuset.CpuSet
    cores: tuple[cpuset.CpuSet, ...]  # the hardware threads of each physical core
    # The CPUs of the control group's cpuset; None: the mask has all of them.
    cpus_cgroup: cpuset.CpuSet | None = None
    # Online CPUs that the scheduler leaves out when it moves threads (isolcpus), allowed or not;
    # empty: there are none.
    isolated: cpuset.CpuSet = cpuset.EMPTY
    # Of this process's control group and the groups above it, the innermost first; empty: none.
    quotas: tuple[Quota, ...] = ()
    l3: tuple[cpuset.CpuSet, ...] = ()
    kinds: tuple[Kind, ...] = ()  # of cores, the fastest first; empty: one kind, or not known
    packages: tuple[cpuset.CpuSet, ...] = ()
    numa: tuple[Numa, ...] = ()  # ordered by id
    memory_nodes: frozenset[int] = cpuset.EMPTY  # NUMA nodes that this process may allocate from
    devices: tuple[Device, ...] = ()  # in the order of `number`; empty: there are none
    nics: tuple[Nic, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def cpus_to_share(self) -> cpuset.CpuSet:
        """The allowed CPUs for the ranks; isolated ones only where there are no others."""
        return self.cpus_allowed - self.isolated or self.cpus_allowed

    @property
    def quota(self) -> Quota | None:
        """The smallest quota, which all processes of its group share."""
        return min(self.quotas, key=lambda quota: quota.cpus, default=None)

    @property
    def most_workers(self) -> int:
        """The number of workers that can have a CPU's time each; at least one."""
        cpus = len(self.cpus_to_share or self.cpus_online)
        return max(1, min(cpus, int(self.quota.cpus))) if self.quota else cpus

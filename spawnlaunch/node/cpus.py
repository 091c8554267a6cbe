"""Read CPUs and their groups: cores, L3 caches, packages, and NUMA nodes with their memory.

Source: Documentation/admin-guide/cputopology.rst, ABI/testing/sysfs-devices-system-cpu and
ABI/stable/sysfs-devices-node of the kernel. One file lists a whole group, so it is read for the
first CPU of a group and not again for the others. `thread_siblings` and `core_siblings` are the
names from before Linux 5.3, which all kernels still have; they are tried first.

Kinds of cores: the directories of hybrid processors of Intel, each of which lists its CPUs
(arch/x86/events/intel/core.c); cpu_capacity, which is 1024 for the fastest cores of an Arm one
(Documentation/scheduler/sched-capacity.rst); else the highest clock
(Documentation/admin-guide/pm/cpufreq.rst). acpi_cppc is not used: it ranks cores of AMD that are of
one kind, and each of its files takes the firmware milliseconds.

A NUMA node without CPUs is ordinary: HBM beside a Xeon Max, CXL memory, or the memory of a GPU that
is coherent with the CPU (POWER9 with V100, Grace with Hopper), which `numa_status` of the NVIDIA
driver names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spawnlaunch.base import cpuset, reading
from spawnlaunch.node import hardware, sysfs

CPU_DIR = "/sys/devices/system/cpu"
CAPACITY, HIGHEST_KHZ = "cpu_capacity", "cpufreq/cpuinfo_max_freq"  # of a CPU
KINDS_OF_INTEL = ("cpu_core", "cpu_atom", "cpu_lowpower")  # the fastest first
NODE_DIR = "/sys/devices/system/node"
NVIDIA_GPUS = "/proc/driver/nvidia/gpus"

CORE = ("thread_siblings_list", "core_cpus_list", "thread_siblings")
PACKAGE = ("core_siblings_list", "package_cpus_list", "core_siblings")
SHARED = ("shared_cpu_list", "shared_cpu_map")
L3_LEVEL = 3
ALIKE = 0.85  # of the speed of a kind's fastest core: favoured cores and other dies are one kind
NR_CPUS = 8192  # the most that a kernel is built for (arch/x86/Kconfig); each costs several files


def read_online(root: str) -> cpuset.CpuSet:
    """The CPUs that are online; none where there is no sysfs."""
    base = root + CPU_DIR
    listed = sysfs.cpus(f"{base}/online")
    if listed is None or len(listed) > NR_CPUS:
        return frozenset(sysfs.numbers(base, "cpu"))
    return listed


def read_cores(root: str, online: cpuset.CpuSet, warnings: list[str]) -> tuple[cpuset.CpuSet, ...]:
    """The hardware threads of each core; a CPU that no file names is a core."""
    base = f"{root}{CPU_DIR}/cpu"
    cores = _groups(online, lambda cpu: [f"{base}{cpu}/topology/{name}" for name in CORE])
    if not cores:
        warnings.append(f"{CPU_DIR}/cpu*/topology is missing: each CPU is taken for a core")
    singles = (frozenset({cpu}) for cpu in online.difference(*cores))
    return tuple(sorted((*cores, *singles), key=min))


def read_packages(root: str, online: cpuset.CpuSet) -> tuple[cpuset.CpuSet, ...]:
    """The CPUs of each package."""
    base = f"{root}{CPU_DIR}/cpu"
    return _groups(online, lambda cpu: [f"{base}{cpu}/topology/{name}" for name in PACKAGE])


def read_l3(root: str, online: cpuset.CpuSet, warnings: list[str]) -> tuple[cpuset.CpuSet, ...]:
    """The groups of CPUs that share a level 3 cache; some CPUs of hybrid parts have none.

    index3 is almost always that cache, but a CPU without an instruction cache of its own, or with
    one more level, numbers its caches in another way.
    """

    def lists_of(cpu: int) -> list[str]:
        cache, index = f"{root}{CPU_DIR}/cpu{cpu}/cache", "index3"
        if sysfs.number(f"{cache}/{index}/level") != L3_LEVEL:
            others = (name for name in sorted(sysfs.names(cache)) if name != index)
            is_l3 = (name for name in others if sysfs.number(f"{cache}/{name}/level") == L3_LEVEL)
            index = next(is_l3, "")
        return [f"{cache}/{index}/{name}" for name in SHARED] if index else []

    l3 = _groups(online, lists_of)
    if not l3 and not sysfs.names(f"{root}{CPU_DIR}/cpu{min(online)}/cache"):
        warnings.append(
            f"{CPU_DIR}/cpu*/cache is missing: cores are divided without regard to L3 groups"
        )
    return l3


def _groups(
    online: cpuset.CpuSet, lists_of: Callable[[int], Sequence[str]]
) -> tuple[cpuset.CpuSet, ...]:
    """The groups of CPUs, each from the first of a CPU's files that lists any."""
    groups: list[cpuset.CpuSet] = []
    grouped: set[int] = set()
    for cpu in sorted(online):
        if cpu not in grouped and (members := sysfs.cpus(*lists_of(cpu))) is not None:
            groups.append((members & online | {cpu}) - grouped)
            grouped |= groups[-1]
    return tuple(groups)


# Cores that differ in speed


def read_kinds(
    root: str, cores: Sequence[cpuset.CpuSet], l3: Sequence[cpuset.CpuSet]
) -> tuple[hardware.Kind, ...]:
    """The kinds of cores, the fastest first; empty where there is one kind, or it is unknown.

    On hybrid processors of Intel cores of cpu_atom without L3 are low-power cores.
    """
    online, with_l3 = cpuset.EMPTY.union(*cores), cpuset.EMPTY.union(*l3)
    fast, small, low = (
        (sysfs.cpus(f"{root}/sys/devices/{name}/cpus") or cpuset.EMPTY) & online
        for name in KINDS_OF_INTEL
    )
    if fast & with_l3:
        small, low = small & with_l3, low | small - with_l3
    of_intel = zip(KINDS_OF_INTEL, (fast, small, low), strict=True)
    kinds = [hardware.Kind(name, cpus) for name, cpus in of_intel if fast and cpus]
    for file in (CAPACITY, HIGHEST_KHZ):
        kinds = kinds if len(kinds) > 1 else _kinds_by_speed(root, cores, file)
    return tuple(kinds) if len(kinds) > 1 else ()


def _kinds_by_speed(root: str, cores: Sequence[cpuset.CpuSet], file: str) -> list[hardware.Kind]:
    """The kinds by a number in a file of each core's first CPU; empty where a file is missing."""
    speeds: dict[int, cpuset.CpuSet] = {}
    for core in cores:
        speed = sysfs.number(f"{root}{CPU_DIR}/cpu{min(core)}/{file}")
        if not speed:
            return []
        speeds[speed] = speeds.get(speed, cpuset.EMPTY) | core
    kinds: list[hardware.Kind] = []
    slowest = max(speeds) + 1  # that is of the last kind
    for speed in sorted(speeds, reverse=True):
        if speed < slowest:
            name = f"capacity {speed}" if file == CAPACITY else f"{speed / 1000:.0f} MHz"
            kinds.append(hardware.Kind(name, cpuset.EMPTY))
            slowest = int(ALIKE * speed)
        kinds[-1] = kinds[-1]._replace(cpus=kinds[-1].cpus | speeds[speed])
    return kinds


# NUMA nodes


def read_numa(root: str, online: cpuset.CpuSet, warnings: list[str]) -> tuple[hardware.Numa, ...]:
    """The NUMA nodes below `root` in the order of their ids, with their online CPUs only."""
    base, gpus = root + NODE_DIR, root + NVIDIA_GPUS
    ids = sysfs.numbers(base, "node")
    if not ids:
        warnings.append(f"{NODE_DIR} is missing: NUMA nodes are not known")
    paths = [f"{base}/node{id}" for id in ids]
    cpus = [online & (sysfs.cpus(f"{p}/cpulist", f"{p}/cpumap") or cpuset.EMPTY) for p in paths]
    # The nodes that are an NVIDIA GPU's memory, from lines such as `Node:  255`.
    of_gpus = {
        sysfs.fields(f"{gpus}/{gpu}/numa_status", ":").get("Node")
        for gpu in (sysfs.names(gpus) if not all(cpus) else ())
    }
    nodes = []
    for id, path, node_cpus in zip(ids, paths, cpus, strict=True):
        # From a line `Node 0 MemTotal:  131573308 kB`.
        content = sysfs.text(f"{path}/meminfo") or ""
        words = content.partition(f"Node {id} MemTotal:")[2].split(None, 1)
        memory = int(words[0]) * 1024 if words and reading.is_number(words[0]) else None
        without_cpus = "gpu" if str(id) in of_gpus else "memory" if memory else "empty"
        distances = _distances(base, path, ids) if len(ids) > 1 else ((id, 10),)
        nodes.append(
            hardware.Numa(id, node_cpus, memory, distances, "cpu" if node_cpus else without_cpus)
        )
    return tuple(nodes)


def _distances(base: str, path: str, ids: list[int]) -> tuple[tuple[int, int], ...]:
    """The distances of a node, from a row with a column for each online node.

    That includes nodes without a directory.
    """
    words = (sysfs.text(f"{path}/distance") or "").split()
    row = [int(word) for word in words if reading.is_number(word)]
    columns = ids if len(row) == len(ids) else sorted(sysfs.cpus(f"{base}/online") or ids)
    return tuple(zip(columns, row, strict=True)) if len(row) == len(columns) else ()

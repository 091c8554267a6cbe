"""CPUs and how they are grouped: cores, L3 caches, packages.

Source: Documentation/admin-guide/cputopology.rst and ABI/testing/sysfs-devices-system-cpu of the
kernel. One file lists a whole group, so it is read for the first CPU of a group and not again for
the others. `thread_siblings` and `core_siblings` are the names of before Linux 5.3, which all
kernels still have; they are asked for first.
"""

from __future__ import annotations

from spawnlaunch.node import sysfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from spawnlaunch.cpuset import CpuSet

CPU_DIR = "/sys/devices/system/cpu"

CORE = ("thread_siblings_list", "core_cpus_list", "thread_siblings")
PACKAGE = ("core_siblings_list", "package_cpus_list", "core_siblings")
SHARED = ("shared_cpu_list", "shared_cpu_map")
L3_LEVEL = 3
NR_CPUS = 8192  # the most that a kernel is built for (arch/x86/Kconfig); each costs several files


def read_online(root: str) -> CpuSet:
    """The CPUs that are online; none where there is no sysfs."""
    base = root + CPU_DIR
    listed = sysfs.cpus(f"{base}/online")
    if listed is None or len(listed) > NR_CPUS:
        return frozenset(sysfs.numbers(base, "cpu"))
    return listed


def read_cores(root: str, online: CpuSet, warnings: list[str]) -> tuple[CpuSet, ...]:
    """The hardware threads of each core; a CPU that no file names is a core."""
    cores = _groups(online, lambda cpu: _topology(root, cpu, CORE))
    if not cores:
        warnings.append(f"{CPU_DIR}/cpu*/topology is missing: each CPU is taken for a core")
    singles = (frozenset({cpu}) for cpu in online.difference(*cores))
    return tuple(sorted((*cores, *singles), key=min))


def read_packages(root: str, online: CpuSet) -> tuple[CpuSet, ...]:
    """The CPUs of each package."""
    return _groups(online, lambda cpu: _topology(root, cpu, PACKAGE))


def read_l3(root: str, online: CpuSet, warnings: list[str]) -> tuple[CpuSet, ...]:
    """CPUs that share a cache of level 3. Some CPUs of hybrid parts have none, and no group."""
    l3 = _groups(online, lambda cpu: _l3_around(f"{root}{CPU_DIR}/cpu{cpu}/cache"))
    if not l3 and not sysfs.names(f"{root}{CPU_DIR}/cpu{min(online)}/cache"):
        warnings.append(
            f"{CPU_DIR}/cpu*/cache is missing: cores are divided without regard to L3 groups"
        )
    return l3


def _groups(online: CpuSet, members_of: Callable[[int], CpuSet | None]) -> tuple[CpuSet, ...]:
    groups: list[CpuSet] = []
    seen: set[int] = set()
    for cpu in sorted(online):
        if cpu not in seen and (members := members_of(cpu)) is not None:
            groups.append((members & online | {cpu}) - seen)
            seen |= groups[-1]
    return tuple(groups)


def _topology(root: str, cpu: int, names: tuple[str, ...]) -> CpuSet | None:
    directory = f"{root}{CPU_DIR}/cpu{cpu}/topology"
    return sysfs.cpus(*[f"{directory}/{name}" for name in names])


def _l3_around(cache: str) -> CpuSet | None:
    """The CPUs that share the level 3 cache below the directory `cache` of one of them.

    index3 is almost always that cache, but a CPU without an instruction cache of its own, or with
    one more level, numbers them in another way.
    """
    index: str | None = "index3"
    if sysfs.number(f"{cache}/{index}/level") != L3_LEVEL:
        others = (name for name in sorted(sysfs.names(cache)) if name != index)
        is_l3 = (name for name in others if sysfs.number(f"{cache}/{name}/level") == L3_LEVEL)
        index = next(is_l3, None)
    return (index and sysfs.cpus(*[f"{cache}/{index}/{name}" for name in SHARED])) or None

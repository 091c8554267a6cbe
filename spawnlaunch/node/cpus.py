"""CPUs and how they are grouped: cores, L3 caches, dies, packages.

Source: Documentation/admin-guide/cputopology.rst and ABI/testing/sysfs-devices-system-cpu of the
kernel. One file lists a whole group, so it is read for the first CPU of a group and not again for
the others. Names before Linux 5.3: `thread_siblings` for a core, `core_siblings` for a package.
"""

from __future__ import annotations

from spawnlaunch.cpuset import CpuSet
from spawnlaunch.node import files
from spawnlaunch.reading import is_number
from spawnlaunch.records import NamedTuple

CPU_DIR = "/sys/devices/system/cpu"

# Lists first; masks are what a few old kernels and captured trees have alone.
CORE = ("topology/core_cpus_list", "topology/thread_siblings_list", "topology/thread_siblings")
DIE = ("topology/die_cpus_list",)
PACKAGE = ("topology/package_cpus_list", "topology/core_siblings_list", "topology/core_siblings")
SHARED = ("shared_cpu_list", "shared_cpu_map")
L3_LEVEL = 3
NR_CPUS = 8192  # the most that a kernel is built for (arch/x86/Kconfig); each costs several files


class Cpus(NamedTuple):
    """CPU numbers and their groups; groups hold online CPUs and are ordered by their lowest."""

    online: CpuSet
    present: CpuSet
    cores: tuple[CpuSet, ...]
    l3: tuple[CpuSet, ...]
    dies: tuple[CpuSet, ...]
    packages: tuple[CpuSet, ...]


def read(root: str, warnings: list[str]) -> Cpus | None:
    """The CPUs below `root`; None where there is no sysfs."""
    base = root + CPU_DIR
    online = files.cpus(f"{base}/online")
    if online is None or len(online) > NR_CPUS:
        online = _cpus_with_directory(base)
    if not online:
        return None
    cores = _groups(base, online, CORE)
    if not cores:
        warnings.append(f"{CPU_DIR}/cpu*/topology is missing: each CPU is taken for a core")
    l3 = _l3_groups(base, online)
    if not l3 and not files.names(f"{base}/cpu{min(online)}/cache"):
        warnings.append(
            f"{CPU_DIR}/cpu*/cache is missing: cores are divided without regard to L3 groups"
        )
    apart = online.difference(*cores)  # CPUs that no file named
    singles = tuple(frozenset({cpu}) for cpu in apart)
    return Cpus(
        online=online,
        present=files.cpus(f"{base}/present") or online,
        cores=tuple(sorted((*cores, *singles), key=min)),
        l3=l3,
        dies=_groups(base, online, DIE),
        packages=_groups(base, online, PACKAGE),
    )


def _cpus_with_directory(base: str) -> CpuSet:
    numbers = (name[3:] for name in files.names(base) if name.startswith("cpu"))
    return frozenset(int(digits) for digits in numbers if is_number(digits))


def _groups(base: str, online: CpuSet, candidates: tuple[str, ...]) -> tuple[CpuSet, ...]:
    groups: list[CpuSet] = []
    seen: set[int] = set()
    for cpu in sorted(online):
        if cpu in seen:
            continue
        name, members = _first(f"{base}/cpu{cpu}", candidates)
        if members is None:
            continue
        candidates = (name, *(other for other in candidates if other != name))
        group = (members & online | {cpu}) - seen
        groups.append(group)
        seen |= group
    return tuple(groups)


def _first(directory: str, candidates: tuple[str, ...]) -> tuple[str, CpuSet | None]:
    """The first of the files that is there, and the CPUs in it."""
    for name in candidates:
        read_group = files.cpus if name.endswith("_list") else files.mask
        members = read_group(f"{directory}/{name}")
        if members is not None:
            return name, members
    return "", None


def _l3_groups(base: str, online: CpuSet) -> tuple[CpuSet, ...]:
    """CPUs that share a cache of level 3. Some CPUs of hybrid parts have none and are in no group.

    index3 is almost always the level 3 cache, but a CPU without an instruction cache of its own,
    or with one more level, numbers them in another way.
    """
    groups: list[CpuSet] = []
    seen: set[int] = set()
    index = "index3"
    for cpu in sorted(online):
        if cpu in seen:
            continue
        cache = f"{base}/cpu{cpu}/cache"
        if files.number(f"{cache}/{index}/level") != L3_LEVEL:
            index = _l3_index(cache) or index
        _, members = _first(f"{cache}/{index}", SHARED)
        if members is None or files.number(f"{cache}/{index}/level") != L3_LEVEL:
            continue
        group = (members & online | {cpu}) - seen
        groups.append(group)
        seen |= group
    return tuple(groups)


def _l3_index(cache: str) -> str | None:
    for name in sorted(files.names(cache)):
        if files.number(f"{cache}/{name}/level") == L3_LEVEL:
            return name
    return None

"""What is around a rank, and no fault of the launch: load, quota, clock governor, swap, memory.

Sources: proc(5) for loadavg, stat and meminfo; sched-bwc.rst and cgroup-v2.rst for a quota of CPU
time; cgroup-v1/memory.rst and cgroup-v2.rst for a limit of memory; cpufreq.rst for governors. What
cannot be read is not known, and then nothing is said of it.
"""

import os
from typing import Any

from spawnlaunch import cpuset
from spawnlaunch.bench import effort
from spawnlaunch.node import cgroup, sysfs

# Of version 2 and 1: the limit of a control group, and what it has.
MEMORY = {"memory.max": "memory.current", "memory.limit_in_bytes": "memory.usage_in_bytes"}


def look(cpus: cpuset.CpuSet) -> dict[str, Any]:
    """As this rank sees it, which may use these CPUs; seconds, bytes and CPUs, None: unknown."""
    memory = sysfs.fields("/proc/meminfo", ":")
    governors = {
        sysfs.text(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor") for cpu in cpus
    }
    limit, used = _memory()
    return {
        "cpus": len(cpus) or os.cpu_count(),
        "load": os.getloadavg()[0],
        "quota_cpus": _quota(),
        "governors": sorted(each for each in governors if each),
        "swap_used": _kib(memory, "SwapTotal") - _kib(memory, "SwapFree"),
        "memory": _kib(memory, "MemTotal"),
        "memory_limit": limit,
        "memory_used": used,
    }


def busy_s() -> float:
    """For how long the CPUs of this rank have run anybody, since the start of the machine."""
    mine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    ticks, _ = effort.cpu_ticks(sysfs.text("/proc/stat") or "", frozenset(mine))
    return (ticks or 0) * effort.TICK_S


def _kib(memory: dict[str, str], name: str) -> int:
    """Bytes; a line reads `SwapTotal:  1024 kB`."""
    words = memory.get(name, "").split()
    return int(words[0]) * 1024 if words else 0


def _quota() -> float | None:
    """The CPUs that a control group's quota of time comes to, the least of all groups above."""
    found = []
    for place in cgroup.directories("", "cpu"):
        quota, _, period = (sysfs.text(f"{place}/cpu.max") or "").partition(" ")  # version 2
        if quota.isdigit() and period.isdigit():
            found.append(int(quota) / int(period))
        first = [sysfs.number(f"{place}/cpu.cfs_{name}_us") for name in ("quota", "period")]
        if first[0] and first[1] and first[0] > 0:
            found.append(first[0] / first[1])
    return min(found, default=None)


def _memory() -> tuple[int | None, int | None]:
    """The limit of this process's control group, and what it has, bytes: of the tightest group."""
    found = []
    for place in cgroup.directories("", "memory"):
        for names in MEMORY.items():
            limit, used = (sysfs.number(f"{place}/{name}") for name in names)
            if limit is not None and used is not None:
                found.append((limit, used))
    return min(found, default=(None, None))

"""Read the limits of this process: its CPU mask, its control group's cpuset, CPU time and memory.

Sources: proc_pid_status(5) for Cpus_allowed_list and Mems_allowed_list; cpuset(7) and
Documentation/admin-guide/cgroup-v1/cpusets.rst for version 1; cgroup-v2.rst for version 2.
The kernel intersects every mask with the cpuset, so on a live system the mask alone is enough; the
cpuset shows how far the mask could be widened, and a snapshot may contain the cpuset only.

A quota of CPU time is in cpu.max for version 2 ("max", or microseconds in a period: "200000
100000"), and in cpu.cfs_quota_us (-1: none) and cpu.cfs_period_us for version 1
(scheduler/sched-bwc.rst). It holds for a group and all groups below it.

The kernel counts for each control group how many processes it has killed for lack of memory: for
version 2 in memory.events (children included), for version 1 in memory.oom_control. Both have a
line "oom_kill N" (cgroup-v2.rst, cgroup-v1/memory.rst).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from spawnlaunch.base import cpuset, machine, reading, records
from spawnlaunch.node import hardware, proc, sysfs

# Version 2, version 1, and the file system that cpusets had before control groups. Version 1 has
# cpuset.effective_cpus too, which may lack CPUs that came back online: hwloc does not use it.
CPUS = ("cpuset.cpus.effective", "cpuset.cpus", "cpus")
MEMS = ("cpuset.mems.effective", "cpuset.mems", "mems")
MEMORY = (("memory.events", "memory.max"), ("memory.oom_control", "memory.limit_in_bytes"))


class Limits(records.NamedTuple):
    """The CPUs and NUMA nodes that a process may use; None: not known."""

    mask: cpuset.CpuSet | None
    cgroup: cpuset.CpuSet | None
    memory_nodes: frozenset[int] | None


class MemoryKills(records.NamedTuple):
    """The number of processes that the kernel has killed for lack of memory in a control group."""

    killed: int
    path: str  # of the file with that number
    limit: int | None  # bytes


def read(root: str, online: cpuset.CpuSet) -> Limits:
    """The limits of this process, or of the process that took the snapshot below `root`.

    Where the mask has all CPUs online, the cpuset removes none, and is not read.
    """
    status = sysfs.fields(f"{root}/proc/self/status", ":")
    listed: dict[str, cpuset.CpuSet] = {}
    for name in ("Cpus_allowed_list", "Mems_allowed_list"):
        with suppress(KeyError, cpuset.CpuSetError):
            listed[name] = cpuset.parse(status[name])
    mask, mems = listed.get("Cpus_allowed_list"), listed.get("Mems_allowed_list")
    if root == "":
        with suppress(AttributeError, OSError):  # the system has no such call, or refuses it
            mask = frozenset(machine.sched_getaffinity(0))
    if root == "" and mask and mask >= online and mems is not None:
        return Limits(mask, None, mems)
    places = directories(root, "cpuset")
    # The first set that is not empty: version 2 leaves a file empty where the parent decides.
    cpus, nodes = (
        sysfs.cpus(*[f"{place}/{name}" for place in places for name in names])
        for names in (CPUS, MEMS)
    )
    return Limits(mask, cpus, nodes if mems is None else mems)


def directories(root: str, controller: str, process: str = "self") -> list[str]:
    """The directories with a controller's files: the process's group, then its parents.

    The controller "" is version 2 itself.
    """
    places = []
    for mount, below in _groups(root, controller, process):
        places.append(f"{mount}{below}")
        while below.startswith("/"):
            below = below.rpartition("/")[0]
            places.append(f"{mount}{below}")
    return places


def _groups(root: str, controller: str, process: str = "self") -> list[tuple[str, str]]:
    """The mount points of a controller, each with the path of a process's group below it.

    The path comes from a line such as `3:cpuset:/slurm/job_1`, `0::/` in version 2. In a container
    it may be the host's, while the container's own group is mounted, with the groups below it: then
    the path is unchanged.
    """
    paths: dict[str, str] = {}
    for line in (sysfs.text(f"{root}/proc/{process}/cgroup") or "").splitlines():
        if line.count(":") >= 2:
            _, controllers, path = line.split(":", 2)
            paths |= dict.fromkeys(controllers.split(","), path)
    group = paths.get(controller, paths.get(""))
    if group is None and controller == "cpuset":
        group = sysfs.text(f"{root}/proc/self/cpuset")
    group = (group or "").rstrip("/")
    groups = []
    for mount, top in _mounts(root, controller):
        top = top.rstrip("/")
        below = group[len(top) :] if f"{group}/".startswith(f"{top}/") else group
        groups.append((f"{root}{mount}", below))
    return groups


def _mounts(root: str, controller: str) -> list[tuple[str, str]]:
    """The mount points of a controller's groups, each with the mounted group.

    Version 2 counts only where the controller has no mount of version 1.

    36 30 0:29 /docker/9f /sys/fs/cgroup/cpu ro,nosuid - cgroup cgroup rw,cpu     in mountinfo
    cgroup /sys/fs/cgroup/cpu cgroup ro,nosuid,cpu 0 0                            in mounts

    The file system that cpusets had before control groups is of the kind "cpuset".
    """
    first, second = [], []
    of_namespace = sysfs.text(f"{root}/proc/self/mountinfo")
    for line in (of_namespace or sysfs.text(f"{root}/proc/mounts") or "").splitlines():
        of_mount, _, of_system = line.partition(" - ")
        if of_namespace:
            top, mount = (*of_mount.split(), *("",) * 5)[3:5]
            kind, _, options, *_ = (*of_system.split(), "", "", "")
        else:  # in a snapshot
            top, (_, mount, kind, options, *_) = "", (*line.split(), "", "", "", "")
        if controller and controller in (options.split(",") if kind == "cgroup" else [kind]):
            first.append((mount, top))
        elif kind == "cgroup2":
            second.append((mount, top))
    return first or second


# CPU time


def read_quotas(root: str = "") -> Iterator[hardware.Quota]:
    """The quotas of this process's group and the groups above it, the innermost first."""
    for place in directories(root, "cpu"):
        path = f"{place}/cpu.max"
        limit, _, period = (sysfs.text(path) or "").partition(" ")
        if not limit:
            path = f"{place}/cpu.cfs_quota_us"
            limit = sysfs.text(path) or ""
            if reading.is_number(limit):
                period = sysfs.text(f"{place}/cpu.cfs_period_us") or ""
        numbers = [int(each) for each in (limit, period) if reading.is_number(each)]
        if len(numbers) == 2 and all(numbers):
            yield hardware.Quota(numbers[0] / numbers[1], path.removeprefix(root))


def holds_alone(quota: hardware.Quota) -> bool:
    """Whether a quota's group has only this process, its ancestors and its descendants.

    False where a process of the group cannot be seen.
    """
    if not proc.is_proc_usable():
        return False
    ancestors = {1, machine.getpid(), *(pid for pid, _ in proc.above())}
    below: set[int] | None = None
    for pid in _members(quota.path.rpartition("/")[0]):
        if pid not in ancestors and below is None:
            below = {each.pid for each in proc.below(proc.children(machine.getpid()))}
        if pid not in ancestors and pid not in (below or ()):
            return False
    return True


def _members(group: str) -> Iterator[int]:
    """Yield the pids of a group and of all groups below it; 0: a process that cannot be seen."""
    listed = sysfs.text(f"{group}/cgroup.procs")
    yield from [0] if listed is None else map(int, listed.split())
    for name in sysfs.names(group):
        if machine.isdir(f"{group}/{name}"):
            yield from _members(f"{group}/{name}")


def memory_kills() -> MemoryKills | None:
    """The count of this process's group; None where the kernel does not show it.

    In a container it is the mounted group's: see `_groups`.
    """
    for place in (f"{mount}{at}" for mount, below in _groups("", "memory") for at in (below, "")):
        for events, limit in MEMORY:
            count = sysfs.fields(f"{place}/{events}").get("oom_kill", "")
            if reading.is_number(count):
                path = f"{place}/{events}"
                return MemoryKills(int(count), path, sysfs.number(f"{place}/{limit}"))
    return None

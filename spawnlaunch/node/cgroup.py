"""What this process may use: its CPU mask, its control group's cpuset and memory, memory nodes.

Sources: proc_pid_status(5) for Cpus_allowed_list and Mems_allowed_list; cpuset(7) and
Documentation/admin-guide/cgroup-v1/cpusets.rst for version 1; cgroup-v2.rst for version 2.
The kernel intersects every mask with the cpuset, so on a live system the mask alone is enough; the
cpuset tells how far the mask could be widened, and in a snapshot it may be all that was kept.

The kernel counts for each control group how many processes it has killed for lack of memory: for
version 2 in memory.events (children included), for version 1 in memory.oom_control. Both have a
line "oom_kill N" (cgroup-v2.rst, cgroup-v1/memory.rst).
"""

from __future__ import annotations

from contextlib import suppress

from spawnlaunch import cpuset, machine, reading, records
from spawnlaunch.node import sysfs

# Version 2, version 1, and the file system that cpusets had before control groups. Version 1 has
# cpuset.effective_cpus too, which can lag behind CPUs that came back online: hwloc passes it by.
CPUS = ("cpuset.cpus.effective", "cpuset.cpus", "cpus")
MEMS = ("cpuset.mems.effective", "cpuset.mems", "mems")
MEMORY = (("memory.events", "memory.max"), ("memory.oom_control", "memory.limit_in_bytes"))


class Limits(records.NamedTuple):
    """CPUs and NUMA nodes that a process may use; None: not known."""

    mask: cpuset.CpuSet | None
    cgroup: cpuset.CpuSet | None
    memory_nodes: frozenset[int] | None


class MemoryKills(records.NamedTuple):
    """How many processes of this control group the kernel has killed for lack of memory."""

    killed: int
    path: str  # of the file that says so
    limit: int | None  # bytes


def read(root: str, online: cpuset.CpuSet) -> Limits:
    """The limits of this process, or of the one that took the snapshot below `root`.

    The cpuset is not looked for where the mask shows that it takes no CPU away.
    """
    status = sysfs.fields(f"{root}/proc/self/status", ":")
    mask, mems = _listed(status, "Cpus_allowed_list"), _listed(status, "Mems_allowed_list")
    if root == "":
        with suppress(AttributeError, OSError):  # there is none here, or it is refused
            mask = frozenset(machine.sched_getaffinity(0))
    if root == "" and mask and mask >= online and mems is not None:
        return Limits(mask, None, mems)
    places = directories(root, "cpuset")
    cpus = _first(places, CPUS)
    return Limits(mask, cpus, _first(places, MEMS) if mems is None else mems)


def _listed(status: dict[str, str], name: str) -> frozenset[int] | None:
    try:
        return cpuset.parse(status[name]) if name in status else None
    except cpuset.CpuSetError:
        return None


def _first(places: list[str], names: tuple[str, ...]) -> cpuset.CpuSet | None:
    """The first that is not empty: version 2 leaves a file empty where the parent decides."""
    return sysfs.cpus(*[f"{place}/{name}" for place in places for name in names])


def directories(root: str, controller: str, process: str = "self") -> list[str]:
    """Where the files of a controller may be read: the process's group, then its parents.

    The controller "" is version 2 itself.

    In a container the path in /proc/self/cgroup may be the host's, which is not there: what is
    mounted, at the end of the parents, is the container's own group.
    """
    path = (_group(root, controller, process) or "").rstrip("/")
    paths = [path]
    while path.startswith("/"):
        path = path.rpartition("/")[0]
        paths.append(path)
    return [f"{root}{mount}{path}" for mount in _mounts(root, controller) for path in paths]


def _group(root: str, controller: str, process: str = "self") -> str | None:
    """The process's group; lines read `3:cpuset:/slurm/job_1` (version 1) or `0::/slurm/job_1`."""
    groups: dict[str, str] = {}
    for line in (sysfs.text(f"{root}/proc/{process}/cgroup") or "").splitlines():
        if line.count(":") >= 2:
            _, controllers, path = line.split(":", 2)
            groups |= dict.fromkeys(controllers.split(","), path)
    found = groups.get(controller, groups.get(""))
    if found is None and controller == "cpuset":
        return sysfs.text(f"{root}/proc/self/cpuset")
    return found


def _mounts(root: str, controller: str) -> list[str]:
    """Where its groups are mounted, version 1 before version 2: one of a kind has the controller.

    The file system that cpusets had before control groups is of the kind "cpuset".
    """
    first, second = [], []
    for line in (sysfs.text(f"{root}/proc/mounts") or "").splitlines():
        _, mount, kind, options, *_ = (*line.split(), "", "", "", "")
        if kind == controller or (kind == "cgroup" and controller in options.split(",")):
            first.append(mount)
        elif kind == "cgroup2":
            second.append(mount)
    return first + second


def memory_kills() -> MemoryKills | None:
    """The count of this process's group; None where the kernel does not show it.

    In a container its group is what is mounted: see `directories`.
    """
    group = (_group("", "memory") or "").rstrip("/")
    for place in (f"{mount}{at}" for mount in _mounts("", "memory") for at in (group, "")):
        for events, limit in MEMORY:
            count = sysfs.fields(f"{place}/{events}").get("oom_kill", "")
            if reading.is_number(count):
                path = f"{place}/{events}"
                return MemoryKills(int(count), path, sysfs.number(f"{place}/{limit}"))
    return None

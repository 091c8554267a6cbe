"""What this process may use: its CPU mask, its control group's cpuset, its memory nodes.

Sources: proc_pid_status(5) for Cpus_allowed_list and Mems_allowed_list; cpuset(7) and
Documentation/admin-guide/cgroup-v1/cpusets.rst for version 1; cgroup-v2.rst for version 2.
The kernel intersects every mask with the cpuset, so on a live system the mask alone is enough; the
cpuset tells how far the mask could be widened, and in a snapshot it may be all that was kept.
"""

from __future__ import annotations

import os

from spawnlaunch import cpuset
from spawnlaunch.cpuset import CpuSet
from spawnlaunch.node import files
from spawnlaunch.records import NamedTuple

# Version 2, version 1, and the file system that cpusets had before control groups. Version 1 has
# cpuset.effective_cpus too, which can lag behind CPUs that came back online: hwloc passes it by.
CPUS = ("cpuset.cpus.effective", "cpuset.cpus", "cpus")
MEMS = ("cpuset.mems.effective", "cpuset.mems", "mems")


class Limits(NamedTuple):
    """CPUs and NUMA nodes that a process may use; None where nobody said."""

    mask: CpuSet | None
    cgroup: CpuSet | None
    memory_nodes: frozenset[int] | None


def read(root: str) -> Limits:
    """The limits of this process, or of the one that took the snapshot below `root`."""
    status = files.fields(f"{root}/proc/self/status", ":")
    directories = _cpuset_directories(root)
    mems = _list(status, "Mems_allowed_list")
    return Limits(
        mask=_mask(root, status),
        cgroup=_first(directories, CPUS),
        memory_nodes=_first(directories, MEMS) if mems is None else mems,
    )


def _mask(root: str, status: dict[str, str]) -> CpuSet | None:
    if root == "" and hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return _list(status, "Cpus_allowed_list")


def _list(status: dict[str, str], name: str) -> frozenset[int] | None:
    try:
        return cpuset.parse(status[name]) if name in status else None
    except cpuset.CpuSetError:
        return None


def _first(directories: list[str], candidates: tuple[str, ...]) -> CpuSet | None:
    """What the first of the files says that says anything."""
    for directory in directories:
        for name in candidates:
            cpus = files.cpus(f"{directory}/{name}")
            if cpus:  # version 2 leaves a file empty, or out, where the parent decides
                return cpus
    return None


def _cpuset_directories(root: str) -> list[str]:
    """Where the cpuset of the process may be read: its group's directory, then its parents'.

    In a container the path in /proc/self/cgroup may be the host's, which is not there: what is
    mounted, at the end of the parents, is the container's own group.
    """
    path = (_group(root) or "").rstrip("/")
    paths = [path]
    while path.startswith("/"):
        path = path.rpartition("/")[0]
        paths.append(path)
    return [f"{root}{mount}{path}" for mount in _mounts(root) for path in paths]


def _group(root: str) -> str | None:
    """The process's group; lines read `3:cpuset:/slurm/job_1` (version 1) or `0::/slurm/job_1`."""
    lines = (files.text(f"{root}/proc/self/cgroup") or "").splitlines()
    entries = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    for _, controllers, path in entries:
        if "cpuset" in controllers.split(","):
            return path
    for number, _, path in entries:
        if number == "0":
            return path
    return files.text(f"{root}/proc/self/cpuset")


def _mounts(root: str) -> list[str]:
    """Where cpusets are mounted, version 1 before version 2: one of a kind has the controller."""
    first, second = [], []
    for line in (files.text(f"{root}/proc/mounts") or "").splitlines():
        _, mount, kind, options, *_ = (*line.split(), "", "", "", "")
        if kind == "cpuset" or (kind == "cgroup" and "cpuset" in options.split(",")):
            first.append(mount)
        elif kind == "cgroup2":
            second.append(mount)
    return first + second

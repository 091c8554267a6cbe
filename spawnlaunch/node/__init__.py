"""What is this machine: CPUs, cores, L3 groups, NUMA nodes, devices. Nothing here decides.

Read from /sys and /proc alone. Any file may be missing: then what it would have said is unknown,
and a line in `Node.warnings` says so.
"""

import os

from spawnlaunch.cpuset import EMPTY, CpuSet
from spawnlaunch.node import cpus, devices, limits, nics, numa, pci
from spawnlaunch.node.model import Device, Nic, Node, Numa

__all__ = ["Device", "Nic", "Node", "Numa", "read"]


def read(root: str = "/", allowed: CpuSet | None = None) -> Node:
    """Read this machine, or a snapshot of another one below the directory `root`.

    `allowed` narrows the CPUs that the process may use. Without it they are the process's mask;
    for a snapshot, the mask or cpuset that was kept in it, else every CPU online.
    """
    root = root.rstrip("/")
    warnings: list[str] = []
    bounds = limits.read(root)
    found = cpus.read(root, warnings)
    if found is None:
        return _without_sysfs(root, allowed, bounds)
    nodes = numa.read(root, found.online, warnings)
    functions = pci.functions(root)
    dev = "/dev" if root == "" else None
    return Node(
        cpus_allowed=_allowed(root, allowed, bounds, found.online, warnings),
        cpus_online=found.online,
        cpus_present=found.present,
        cpus_cgroup=bounds.cgroup & found.online if bounds.cgroup else None,
        cores=found.cores,
        l3=found.l3,
        dies=found.dies,
        packages=found.packages,
        numa=nodes,
        memory_nodes=_memory_nodes(bounds.memory_nodes, nodes),
        devices=devices.read(root, functions, found.online, nodes, dev, warnings),
        nics=nics.read(root, functions, found.online, nodes),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _allowed(
    root: str, asked: CpuSet | None, bounds: limits.Limits, online: CpuSet, warnings: list[str]
) -> CpuSet:
    known = [cpus & online for cpus in (bounds.mask, bounds.cgroup) if cpus is not None]
    given = EMPTY.union(*known[:1]) or online
    if root and len(known) > 1:  # a snapshot may keep a mask from before the cpuset
        given = given & known[1] or given
    if asked is None:
        return given
    within = asked & (online if root else given)
    if not within:
        warnings.append("none of the CPUs asked for is there: all that are allowed are taken")
        return given
    return within


def _memory_nodes(allowed: frozenset[int] | None, nodes: tuple[Numa, ...]) -> frozenset[int]:
    present = frozenset(node.id for node in nodes if node.memory != 0)
    return present & allowed if allowed else present


def _without_sysfs(root: str, allowed: CpuSet | None, bounds: limits.Limits) -> Node:
    """macOS, or a container without /sys: the mask if there is one, else the number of CPUs."""
    there = bounds.mask or allowed or EMPTY
    narrowed = there & allowed if allowed else there
    count = os.cpu_count() or 1 if root == "" else 0
    online = there or frozenset(range(count))
    return Node(
        cpus_allowed=narrowed or there,
        cpus_online=online,
        cpus_present=online,
        cpus_cgroup=None,
        cores=tuple(frozenset({cpu}) for cpu in sorted(online)),
        l3=(),
        dies=(),
        packages=(),
        numa=(),
        memory_nodes=EMPTY,
        devices=(),
        nics=(),
        warnings=(
            f"there is no {cpus.CPU_DIR}{' below ' + root if root else ''}: of this machine "
            "nothing is known but its CPUs",
        ),
    )

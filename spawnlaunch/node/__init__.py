"""Read this machine: CPUs, cores, L3 groups, NUMA nodes and devices. Nothing here decides.

The readers use /sys and /proc only. Any file may be missing: its value is then unknown, and
`Node.warnings` has a line that says so.
"""

from __future__ import annotations

import os

from spawnlaunch.base import cpuset
from spawnlaunch.node import cgroup, cpus, devices, pci, sysfs
from spawnlaunch.node.hardware import Device, Kind, Nic, Node, Numa, Quota

__all__ = ["Device", "Kind", "Nic", "Node", "Numa", "Quota", "read"]


def read(root: str = "/", allowed: cpuset.CpuSet | None = None, everything: bool = True) -> Node:
    """Read this machine, or a snapshot of another one below the directory `root`.

    `allowed` narrows the CPUs that the process may use. Without it they are the process's mask;
    for a snapshot, the mask or cpuset that was kept in it, else every CPU online. With `everything`
    False it does not read packages and network adapters.
    """
    root = root.rstrip("/")
    warnings: list[str] = []
    online = cpus.read_online(root)
    limits = cgroup.read(root, online)
    if not online:
        return _without_sysfs(root, allowed, limits)
    if not root and limits.mask:  # lxcfs shows a container as many CPUs as it may use, from 0 on
        online |= limits.mask
    cores = cpus.read_cores(root, online, warnings)
    l3 = cpus.read_l3(root, online, warnings)
    nodes = cpus.read_numa(root, online, warnings)
    packages = cpus.read_packages(root, online) if everything or not nodes else ()
    bus = pci.Bus(root, pci.read_functions(root, everything), online, nodes, packages)
    with_memory = frozenset(node.id for node in nodes if node.memory != 0)
    return Node(
        cpus_allowed=_allowed(root, allowed, limits, online, warnings),
        cpus_online=online,
        cores=cores,
        cpus_cgroup=limits.cgroup & online if limits.cgroup else None,
        # CPUs of nohz_full= alone, which has a file of its own, lose their clock tick only.
        isolated=online & (sysfs.cpus(f"{root}{cpus.CPU_DIR}/isolated") or cpuset.EMPTY),
        quotas=tuple(cgroup.read_quotas(root)),
        l3=l3,
        kinds=cpus.read_kinds(root, cores, l3),
        packages=packages if everything else (),
        numa=nodes,
        memory_nodes=with_memory & (limits.memory_nodes or with_memory),
        devices=devices.read(bus, None if root else "/dev", warnings),
        nics=devices.read_nics(bus) if everything else (),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _allowed(
    root: str,
    wanted: cpuset.CpuSet | None,
    limits: cgroup.Limits,
    online: cpuset.CpuSet,
    warnings: list[str],
) -> cpuset.CpuSet:
    """The allowed CPUs: the mask, else the cpuset, else all online, narrowed to `wanted`.

    For a snapshot `wanted` may be any CPUs that are online.
    """
    known = [each & online for each in (limits.mask, limits.cgroup) if each is not None]
    usual = cpuset.EMPTY.union(*known[:1]) or online
    if root and len(known) > 1:  # the mask in a snapshot may be older than the cpuset
        usual = usual & known[1] or usual
    if wanted is None:
        return usual
    within = wanted & (online if root else usual)
    if not within:
        warnings.append("none of the CPUs asked for is there: all that are allowed are taken")
    return within or usual


def _without_sysfs(root: str, allowed: cpuset.CpuSet | None, limits: cgroup.Limits) -> Node:
    """Return the node without /sys, as on macOS: the CPUs of the mask, else only their number."""
    there = limits.mask or allowed or cpuset.EMPTY
    count = os.cpu_count() or 1 if root == "" else 0
    online = there or frozenset(range(count))
    missing = (
        f"there is no {cpus.CPU_DIR}{' below ' + root if root else ''}: of this machine "
        "nothing is known but its CPUs"
    )
    warnings = [missing]
    bus = pci.Bus(root, pci.read_functions(root, network=False), online, ())
    return Node(
        cpus_allowed=there & (allowed or there) or there,
        cpus_online=online,
        cores=tuple(frozenset({cpu}) for cpu in sorted(online)),
        quotas=tuple(cgroup.read_quotas(root)),
        devices=devices.read(bus, None if root else "/dev", warnings),
        warnings=tuple(warnings),
    )

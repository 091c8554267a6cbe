"""NUMA nodes: their CPUs, memory and distances.

Source: Documentation/ABI/stable/sysfs-devices-node of the kernel. A node without CPUs is ordinary:
HBM beside a Xeon Max, CXL memory, or the memory of a GPU that is coherent with the CPU (POWER9 with
V100, Grace with Hopper), which `numa_status` of the NVIDIA driver names.
"""

from __future__ import annotations

from spawnlaunch.cpuset import EMPTY, CpuSet
from spawnlaunch.node import sysfs
from spawnlaunch.node.model import Numa
from spawnlaunch.reading import is_number

NODE_DIR = "/sys/devices/system/node"
NVIDIA_GPUS = "/proc/driver/nvidia/gpus"


def read(root: str, online: CpuSet, warnings: list[str]) -> tuple[Numa, ...]:
    """The NUMA nodes below `root` in the order of their ids; CPUs that are offline are left out."""
    base = root + NODE_DIR
    ids = sysfs.numbers(base, "node")
    if not ids:
        warnings.append(f"{NODE_DIR} is missing: NUMA nodes are not known")
    paths = [f"{base}/node{id}" for id in ids]
    cpus = [online & (sysfs.cpus(f"{p}/cpulist", f"{p}/cpumap") or EMPTY) for p in paths]
    gpu_memory = EMPTY if all(cpus) else _gpu_memory_nodes(root)
    nodes = []
    for id, path, own in zip(ids, paths, cpus, strict=True):
        memory = _memory(path, id)
        without_cpus = "gpu" if id in gpu_memory else "memory" if memory else "empty"
        distances = _distances(base, path, ids)
        nodes.append(Numa(id, own, memory, distances, "cpu" if own else without_cpus))
    return tuple(nodes)


def _distances(base: str, path: str, ids: list[int]) -> tuple[tuple[int, int], ...]:
    """A row has a column for each online node, also for one that has no directory."""
    words = (sysfs.text(f"{path}/distance") or "").split()
    row = [int(word) for word in words if is_number(word)]
    columns = ids if len(row) == len(ids) else sorted(sysfs.cpus(f"{base}/online") or ids)
    return tuple(zip(columns, row, strict=True)) if len(row) == len(columns) else ()


def _memory(path: str, id: int) -> int | None:
    """MemTotal in bytes; the line reads `Node 0 MemTotal:  131573308 kB`."""
    content = sysfs.text(f"{path}/meminfo") or ""
    words = content.partition(f"Node {id} MemTotal:")[2].split(None, 1)
    return int(words[0]) * 1024 if words and is_number(words[0]) else None


def _gpu_memory_nodes(root: str) -> frozenset[int]:
    """NUMA nodes that are the memory of an NVIDIA GPU; the line reads `Node:  255`."""
    base = root + NVIDIA_GPUS
    said = [sysfs.fields(f"{base}/{g}/numa_status", ":").get("Node", "") for g in sysfs.names(base)]
    return frozenset(int(node) for node in said if is_number(node))

"""NUMA nodes: their CPUs, memory and distances.

Source: Documentation/ABI/stable/sysfs-devices-node of the kernel. A node without CPUs is ordinary:
HBM beside a Xeon Max, CXL memory, or the memory of a GPU that is coherent with the CPU (POWER9 with
V100, Grace with Hopper), which `numa_status` of the NVIDIA driver names.
"""

from spawnlaunch.cpuset import EMPTY, CpuSet
from spawnlaunch.node import files
from spawnlaunch.node.model import Numa
from spawnlaunch.reading import is_number

NODE_DIR = "/sys/devices/system/node"
NVIDIA_GPUS = "/proc/driver/nvidia/gpus"


def read(root: str, online: CpuSet, warnings: list[str]) -> tuple[Numa, ...]:
    """The NUMA nodes below `root` in the order of their ids; CPUs that are offline are left out."""
    base = root + NODE_DIR
    directories = _node_directories(base)
    if not directories:
        warnings.append(f"{NODE_DIR} is missing: NUMA nodes are not known")
        return ()
    gpu_memory = _gpu_memory_nodes(root)
    # A row of distances has a column for each online node, also for one that has no directory.
    columns = sorted(files.cpus(f"{base}/online") or directories)
    return tuple(_numa_node(base, node, online, columns, gpu_memory) for node in directories)


def _node_directories(base: str) -> list[int]:
    numbers = (name[4:] for name in files.names(base) if name.startswith("node"))
    return sorted(int(digits) for digits in numbers if is_number(digits))


def _numa_node(
    base: str, node: int, online: CpuSet, columns: list[int], gpu_memory: frozenset[int]
) -> Numa:
    directory = f"{base}/node{node}"
    cpus = files.cpus(f"{directory}/cpulist")
    if cpus is None:
        cpus = files.mask(f"{directory}/cpumap") or EMPTY
    memory = _memory(directory, node)
    words = (files.text(f"{directory}/distance") or "").split()
    row = [int(word) for word in words if is_number(word)]
    return Numa(
        id=node,
        cpus=cpus & online,
        memory=memory,
        distances=tuple(zip(columns, row, strict=True)) if len(row) == len(columns) else (),
        kind=_kind(node, cpus & online, memory, gpu_memory),
    )


def _kind(node: int, cpus: CpuSet, memory: int | None, gpu_memory: frozenset[int]) -> str:
    if node in gpu_memory:
        return "gpu"
    if cpus:
        return "cpu"
    return "memory" if memory else "empty"


def _memory(directory: str, node: int) -> int | None:
    """MemTotal in bytes; the line reads `Node 0 MemTotal:  131573308 kB`."""
    content = files.text(f"{directory}/meminfo") or ""
    _, found, rest = content.partition(f"Node {node} MemTotal:")
    words = rest.split(None, 1)
    return int(words[0]) * 1024 if found and words and is_number(words[0]) else None


def _gpu_memory_nodes(root: str) -> frozenset[int]:
    """NUMA nodes that are the memory of an NVIDIA GPU; the line reads `Node:  255`."""
    found = set()
    for gpu in files.names(root + NVIDIA_GPUS):
        node = files.fields(f"{root}{NVIDIA_GPUS}/{gpu}/numa_status", ":").get("Node", "")
        if is_number(node):
            found.add(int(node))
    return frozenset(found)

"""The CPUs and threads that torchrun's --numa-binding gives to ranks, on a node of ours.

The rules are those that the documentation of AffinityMode in torch/numa/binding.py tells (torch
2.13): a rank has the GPU whose index is its local rank, and no CPU outside of the mask. A GPU whose
NUMA node is not known is taken for one of node 0. torch/distributed/run.py exports
OMP_NUM_THREADS=1 where there are several ranks. tests/pages/test_numa_binding.py compares the rules
with torch. torchrun fails where the kernel does not show a file; of that nothing is known here.
"""

from collections.abc import Sequence
from typing import NamedTuple

from spawnlaunch.base import cpuset
from spawnlaunch.base.cpuset import CpuSet
from spawnlaunch.node import Device, Node

NODE, SOCKET, EXCLUSIVE, CORE_COMPLEX = "node", "socket", "exclusive", "core-complex"
MODES = (NODE, SOCKET, EXCLUSIVE, CORE_COMPLEX)
VENDORS = ("nvidia", "amd")  # of devices that torch.cuda counts


class RefusedError(Exception):
    """torchrun raises, and starts no worker."""


class Placed(NamedTuple):
    """The CPUs and threads that a launcher gives to a rank."""

    cpus: CpuSet
    threads: int | None  # OMP_NUM_THREADS; None: not set


def place_ranks(mode: str, node: Node, gpus: Sequence[Device], ranks: int) -> list[Placed]:
    """The ranks of a node on which torch counts these GPUs. Raises RefusedError."""
    threads = 1 if ranks > 1 else None
    return [Placed(cpus_of_rank(mode, node, gpus, rank), threads) for rank in range(ranks)]


def cpus_of_rank(mode: str, node: Node, gpus: Sequence[Device], rank: int) -> CpuSet:
    """The CPUs of one rank. Raises RefusedError."""
    if rank >= len(gpus):
        raise RefusedError(f"there is no GPU {rank}")
    home = _home(gpus[rank])
    allowed = _allowed_on(node, home)
    if not allowed:
        raise RefusedError(f"NUMA node {home} has no allowed CPU")
    if mode == NODE:
        return allowed
    if mode == SOCKET:
        return _on_socket(node, allowed)
    neighbours = [i for i, gpu in enumerate(gpus) if _home(gpu) == home]
    place = neighbours.index(rank)
    if mode == EXCLUSIVE:
        return _slice(_parts(allowed, node.cores), place, len(neighbours))
    # Where no L3 is known, the largest cache is taken for one of a core.
    with_l3 = cpuset.EMPTY.union(*node.l3)
    caches = (*node.l3, *(core for core in node.cores if core.isdisjoint(with_l3)))
    complexes = sorted(_parts(allowed, caches), key=len, reverse=True)
    return complexes[place % len(complexes)]


def _home(gpu: Device) -> int:
    return gpu.numa or 0


def _allowed_on(node: Node, numa: int) -> CpuSet:
    on_node = (each.cpus for each in node.numa if each.id == numa)
    return node.cpus_allowed.intersection(*on_node) if numa in _ids(node) else cpuset.EMPTY


def _ids(node: Node) -> list[int]:
    return [each.id for each in node.numa]


def _on_socket(node: Node, cpus: CpuSet) -> CpuSet:
    """The allowed CPUs of all NUMA nodes that begin in the package where these CPUs begin.

    torchrun looks for the first allowed CPU of every NUMA node of the machine.
    """
    parts = [_allowed_on(node, numa) for numa in _ids(node)]
    if not all(parts):
        raise RefusedError("a NUMA node has no allowed CPU")
    package = _package(node, min(cpus))
    return cpuset.EMPTY.union(*(part for part in parts if _package(node, min(part)) == package))


def _package(node: Node, cpu: int) -> CpuSet:
    return next((package for package in node.packages if cpu in package), node.cpus_online)


def _parts(cpus: CpuSet, groups: Sequence[CpuSet]) -> list[CpuSet]:
    """What these CPUs are of each group, in the order of the groups' first CPUs."""
    return [cpus & group for group in sorted(groups, key=min) if cpus & group]


def _slice(cores: Sequence[CpuSet], place: int, count: int) -> CpuSet:
    """The cores of one of `count` GPUs: an equal part, the first GPUs having what is left over."""
    base, larger = divmod(len(cores), count)
    if not base:
        raise RefusedError("a NUMA node has fewer allowed cores than GPUs")
    start = place * base + min(place, larger)
    return cpuset.EMPTY.union(*cores[start : start + base + (place < larger)])

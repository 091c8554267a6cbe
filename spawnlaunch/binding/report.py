"""Bindings as lines: one for each rank at the start, and one that makes srun do the same."""

from __future__ import annotations

from spawnlaunch import cpuset
from spawnlaunch.binding.apply import Binding
from spawnlaunch.node import Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def report_line(rank: int, binding: Binding, node: Node, omp: int | str, host: str = "") -> str:
    """What a person reads of a rank; `omp` is the OMP_NUM_THREADS that it gets.

    `host` is named where the lines of several come together.

    rank 3  local 3  gpu 3 0000:ce:00.0  numa 1  cpus 24-31,88-95 (8 cores)  mem 1 omp 8
    """
    parts = [
        f"rank {rank}  {host}".strip(),
        f"local {binding.local_rank}",
        device_name(node, binding.device),
        f"numa {_numa(node, binding)}",
        _cpus(node, binding),
        f"mem {cpuset.format(binding.memory_nodes) or '-'} omp {omp}",
        f"({binding.note})" if binding.note else "",
    ]
    return "  ".join(part for part in parts if part)


def device_name(node: Node, number: int | None) -> str:
    """`gpu 3 0000:ce:00.0`, with the tile or partition where its address has several."""
    if number is None:
        return ""
    device = node.devices[number]
    part = "" if device.partition is None else f" {device.kind} {device.partition}"
    return f"gpu {number} {device.address}{part}"


def _numa(node: Node, binding: Binding) -> str:
    homes = frozenset(each.id for each in node.numa if each.cpus & binding.cpus)
    return cpuset.format(homes) or "-"


def _cpus(node: Node, binding: Binding) -> str:
    if not binding.cpus:
        return "not pinned"
    cores = sum(1 for core in node.cores if core & binding.cpus)
    noun = "core" if cores == 1 else "cores"
    return f"cpus {cpuset.format(binding.cpus)} ({cores} {noun})"


def srun_line(bindings: Sequence[Binding], nodes: int) -> str | None:
    """The options that make srun bind tasks in the same way; None where ranks are not pinned.

    --ntasks-per-node alone would give way to the --ntasks of the job (srun(1)).
    """
    if not bindings or not all(binding.cpus for binding in bindings):
        return None
    masks = ",".join(cpuset.format_mask(binding.cpus) for binding in bindings)
    tasks = nodes * len(bindings)
    return f"srun --nodes={nodes} --ntasks={tasks} --cpu-bind=mask_cpu:{masks}"

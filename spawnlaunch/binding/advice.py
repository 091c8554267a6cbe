"""Masks that somebody set before us: respected, and named where they are in the way."""

from __future__ import annotations

from spawnlaunch import cpuset
from spawnlaunch.binding.plan import Binding
from spawnlaunch.cpuset import CpuSet
from spawnlaunch.node import Node
from spawnlaunch.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SLURM_MASKS = "SLURM_CPU_BIND_LIST"  # the masks of all tasks of the step on this node, in order


class Widened(NamedTuple):
    """The CPUs that `--widen` leaves to use, and why no more."""

    cpus: CpuSet
    warning: str | None


def widened(node: Node) -> Widened:
    """What may be used when the mask that was set is left: the control group's cpuset.

    Only where that cpuset is smaller than the machine. Without one, nothing tells our CPUs from
    those of another job on this node, and the mask stays.
    """
    group = node.cpus_cgroup
    if not group or not group < node.cpus_online:
        return Widened(
            node.cpus_allowed,
            "--widen: the control group's cpuset is not smaller than this machine, so nothing "
            "tells which CPUs are ours: the mask stays",
        )
    return Widened(group | node.cpus_allowed, None)


def own_mask(
    node: Node, environ: Mapping[str, str], local_rank: int, local_size: int, allowed: CpuSet
) -> bool:
    """Whether the allowed CPUs are this task's alone, so that no other task divides them.

    Slurm's task/affinity says so in the list of masks that it set, which is used again from its
    beginning where there are more tasks (srun(1), SLURM_CPU_BIND_LIST). Without a list a mask of
    one core is taken for a task's own, for it cannot be divided, unless there is nothing else for
    any task here. Any other mask is taken for one that the tasks on this node share: dividing it
    again loses cores, and not dividing it would give them out twice.
    """
    try:
        listed = [cpuset.parse_mask(word) for word in environ.get(SLURM_MASKS, "").split(",")]
    except cpuset.CpuSetError:
        is_all = local_size > 1 and allowed >= (node.cpus_cgroup or node.cpus_online)
        return _cores(node, allowed) == 1 and not is_all
    masks = [listed[i % len(listed)] for i in range(local_size)]
    mine, others = masks[local_rank], masks[:local_rank] + masks[local_rank + 1 :]
    return bool(allowed) and allowed <= mine and all(mine.isdisjoint(other) for other in others)


def mask_advice(
    node: Node, bindings: Sequence[Binding], local_size: int, allowed: CpuSet
) -> str | None:
    """One line where the allowed CPUs are the wrong ones or too few, with the cure.

    `allowed` is what the plan was made with.
    """
    if not allowed or allowed >= node.cpus_online:
        return None
    return _wrong(node, bindings, allowed) or _narrow(node, bindings, local_size, allowed)


def _wrong(node: Node, bindings: Sequence[Binding], allowed: CpuSet) -> str | None:
    for binding in bindings:
        device = None if binding.device is None else node.devices[binding.device]
        if device is None or not device.local_cpus or device.local_cpus & allowed:
            continue
        return (
            f"the allowed CPUs {cpuset.format(allowed)} are not next to device {device.number} "
            f"({device.address}), whose CPUs are {cpuset.format(device.local_cpus)}: start with "
            f"{_remedy(node, device.local_cpus)}"
        )
    return None


def _remedy(node: Node, wanted: CpuSet) -> str:
    """A mask can be left within the job's cpuset; otherwise the job has to ask for more."""
    group = node.cpus_cgroup
    if group is not None and wanted & group and group < node.cpus_online:
        return "srun --cpu-bind=none, or with --widen"
    if group is None or wanted & group:
        return "srun --cpu-bind=none"
    return "srun --gres-flags=enforce-binding, or ask for the whole node with --exclusive"


def _narrow(
    node: Node, bindings: Sequence[Binding], local_size: int, allowed: CpuSet
) -> str | None:
    mine = _cores(node, allowed)
    there = len(node.cores)
    if any(binding.threads > 1 for binding in bindings) or there < 2 * local_size or mine >= there:
        return None
    cpus = len(node.cpus_online) * len(bindings) // local_size
    noun = "core" if mine == 1 else "cores"
    return (
        f"the mask allows {mine} {noun} (CPUs {cpuset.format(allowed)}) of {there}, one for each "
        f"rank at most: start with srun --cpus-per-task={cpus}, or, in a job that has them "
        "already, with srun --cpu-bind=none"
    )


def _cores(node: Node, cpus: CpuSet) -> int:
    return sum(1 for core in node.cores if core & cpus)

"""What is to be said of a plan, and of masks and variables that somebody set before us.

Masks are respected, and named where they are in the way.
"""

from __future__ import annotations

from spawnlaunch import cpuset
from spawnlaunch.binding.cores import count_cores

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from spawnlaunch.binding.apply import Binding
    from spawnlaunch.binding.claims import Claimant
    from spawnlaunch.binding.shares import Share
    from spawnlaunch.cpuset import CpuSet
    from spawnlaunch.node import Node
    from spawnlaunch.values import Policy

SLURM_MASKS = "SLURM_CPU_BIND_LIST"  # the masks of all tasks of the step on this node, in order
PROC_BIND, PLACES, GOMP = "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"
_BINDS = frozenset({"true", "close", "spread", "master", "primary"})


def openmp_hazards(environ: Mapping[str, str]) -> list[str]:
    """A line for each OpenMP variable that takes a worker's CPUs away after it was bound.

    With any of them, libgomp binds the thread that loads it, which is the main thread at `import
    torch`, to one place, by default one hardware thread. DataLoader workers inherit that, and
    GOMP_CPU_AFFINITY even leaves the mask it was given. (Measured with the libgomp of torch 2.13 on
    Linux; the libgomp manual, "Environment Variables". OMP_PROC_BIND=false turns all three off.)
    """
    value = {name: environ.get(name, "").strip() for name in (PROC_BIND, PLACES, GOMP)}
    proc_bind = value[PROC_BIND].lower()
    effects = {
        PROC_BIND: "binds the worker's main thread to one place",
        PLACES: "binds the worker's main thread to its first place",
        GOMP: "moves the worker to these CPUs, whatever its binding",
    }
    value[PROC_BIND] = proc_bind if proc_bind.split(",")[0].strip() in _BINDS else ""
    return [
        f"{name}={environ[name]} {effect}, often a single CPU, and DataLoader workers inherit it: "
        f"unset it, or set {PROC_BIND}=false"
        for name, effect in effects.items()
        if value[name] and proc_bind != "false"
    ]


def widened(node: Node) -> tuple[Node, list[str]]:
    """The node with the mask left for its control group's cpuset, and why that cannot be.

    Only where that cpuset is smaller than the machine. Without one, nothing tells our CPUs from
    those of another job on this node, and the mask stays.
    """
    group = node.cpus_cgroup
    if group and group < node.cpus_online:
        return node._replace(cpus_allowed=group | node.cpus_allowed), []
    return node, [
        "--widen: the control group's cpuset is not smaller than this machine, so nothing tells "
        "which CPUs are ours: the mask stays"
    ]


def is_own_mask(node: Node, environ: Mapping[str, str], local_rank: int, local_size: int) -> bool:
    """Whether the allowed CPUs are this task's alone, so that no other task divides them.

    Slurm's task/affinity says so in the list of masks that it set, which is used again from its
    beginning where there are more tasks (srun(1), SLURM_CPU_BIND_LIST). Without a list a mask of
    one core is taken for a task's own, for it cannot be divided, unless there is nothing else for
    any task here. Any other mask is taken for one that the tasks on this node share: dividing it
    again loses cores, and not dividing it would give them out twice.
    """
    allowed = node.cpus_allowed
    try:
        listed = [cpuset.parse_mask(word) for word in environ.get(SLURM_MASKS, "").split(",")]
    except cpuset.CpuSetError:
        is_all = local_size > 1 and allowed >= (node.cpus_cgroup or node.cpus_online)
        return count_cores(node, allowed) == 1 and not is_all
    masks = [listed[i % len(listed)] for i in range(local_size)]
    mine, others = masks[local_rank], masks[:local_rank] + masks[local_rank + 1 :]
    return bool(allowed) and allowed <= mine and all(mine.isdisjoint(other) for other in others)


def of_mask(node: Node, bindings: Sequence[Binding], local_size: int) -> list[str]:
    """One line where the allowed CPUs are the wrong ones or too few, with the cure."""
    allowed = node.cpus_allowed
    if not allowed or allowed >= node.cpus_online:
        return []
    for binding in bindings:
        device = None if binding.device is None else node.devices[binding.device]
        if device and device.local_cpus and not device.local_cpus & allowed:
            return [
                f"the allowed CPUs {cpuset.format(allowed)} are not next to device {device.number} "
                f"({device.address}), whose CPUs are {cpuset.format(device.local_cpus)}: start "
                f"with {_remedy(node, device.local_cpus)}"
            ]
    mine, there = count_cores(node, allowed), len(node.cores)
    if any(binding.threads > 1 for binding in bindings) or there < 2 * local_size or mine >= there:
        return []
    cpus = len(node.cpus_online) * len(bindings) // local_size
    noun = "core" if mine == 1 else "cores"
    return [
        f"the mask allows {mine} {noun} (CPUs {cpuset.format(allowed)}) of {there}, one for each "
        f"rank at most: start with srun --cpus-per-task={cpus}, or, in a job that has them "
        "already, with srun --cpu-bind=none"
    ]


def _remedy(node: Node, wanted: CpuSet) -> str:
    """A mask can be left within the job's cpuset; otherwise the job has to ask for more."""
    group = node.cpus_cgroup
    if group is not None and wanted & group and group < node.cpus_online:
        return "srun --cpu-bind=none, or with --widen"
    if group is None or wanted & group:
        return "srun --cpu-bind=none"
    return "srun --gres-flags=enforce-binding, or ask for the whole node with --exclusive"


def of_unknown_devices(ranks: Sequence[Claimant]) -> Iterator[str]:
    """A line where ranks have devices of which it cannot be told which they are."""
    unknown = [rank.local_rank for rank in ranks if not rank.known]
    if unknown:
        yield (
            f"{_named(unknown)}: which device it is cannot be told from the list of visible "
            "devices; the cores are shared out without regard to it"
        )


def of_shares(
    ranks: Sequence[Claimant], usable: CpuSet, shares: Sequence[Share], policy: Policy
) -> Iterator[str]:
    """Lines where shares are not what ranks should have."""
    away = [rank.local_rank for rank in ranks if rank.claim is None]
    if away:
        yield (
            f"{_named(away)}: none of the allowed CPUs is next to the device; all allowed CPUs "
            f"({cpuset.format(usable)}) are shared"
        )
    mine = [(r.local_rank, shares[r.claim]) for r in ranks if r.claim is not None]
    crowded = [rank for rank, share in mine if not share.alone]
    if crowded:
        yield f"{_named(crowded)}: there are fewer cores than ranks, so ranks share cores"
    short = [rank for rank, share in mine if policy.threads and len(share.cores) < policy.threads]
    if short:
        yield f"{_named(short)}: there are fewer than {policy.threads} cores for each"


def _named(ranks: Sequence[int]) -> str:
    noun = "local rank" if len(ranks) == 1 else "local ranks"
    return f"{noun} {cpuset.format(ranks)}"

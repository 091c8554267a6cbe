"""What people are told of bindings: a line for each rank, one that makes srun do it, warnings.

Masks and variables that somebody set before us are respected, and named where they are in the way.
"""

from __future__ import annotations

from spawnlaunch import cpuset
from spawnlaunch.binding import apply, claims
from spawnlaunch.binding.cores import count_cores
from spawnlaunch.world import managers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from spawnlaunch import values
    from spawnlaunch.binding.cores import Share
    from spawnlaunch.node import hardware

PROC_BIND, PLACES, GOMP = "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"
_BINDS = frozenset({"true", "close", "spread", "master", "primary"})


def report_line(
    rank: int, binding: apply.Binding, node: hardware.Node, omp: int | str, host: str = ""
) -> str:
    """The line about a rank, for people; `omp` is the OMP_NUM_THREADS that it gets.

    `host` is named where the lines of several come together.

    rank 3  local 3  gpu 3 0000:ce:00.0  numa 1  cpus 24-31,88-95 (8 cores)  mem 1 omp 8
    """
    homes = cpuset.format(each.id for each in node.numa if each.cpus & binding.cpus)
    cores = count_cores(node, binding.cpus)
    cpus = f"cpus {cpuset.format(binding.cpus)} ({cores} core{'' if cores == 1 else 's'})"
    parts = [
        f"rank {rank}  {host}".strip(),
        f"local {binding.local_rank}",
        device_name(node, binding.device),
        f"numa {homes or '-'}",
        cpus if binding.cpus else "not pinned",
        f"mem {cpuset.format(binding.memory_nodes) or '-'} omp {omp}",
        f"({binding.note})" if binding.note else "",
    ]
    return "  ".join(part for part in parts if part)


def device_name(node: hardware.Node, number: int | None) -> str:
    """`gpu 3 0000:ce:00.0`, with the tile or partition where its address has several."""
    if number is None:
        return ""
    device = node.devices[number]
    part = "" if device.partition is None else f" {device.kind} {device.partition}"
    return f"gpu {number} {device.address}{part}"


def srun_line(bindings: Sequence[apply.Binding], nodes: int) -> str | None:
    """The options that make srun bind tasks in the same way; None where ranks are not pinned.

    --ntasks-per-node alone would give way to the --ntasks of the job (srun(1)).
    """
    if not bindings or not all(binding.cpus for binding in bindings):
        return None
    masks = ",".join(cpuset.format_mask(binding.cpus) for binding in bindings)
    tasks = nodes * len(bindings)
    return f"srun --nodes={nodes} --ntasks={tasks} --cpu-bind=mask_cpu:{masks}"


# Warnings

UNMASKED = "without the taskset or numactl that has set it, or with more CPUs in its list"
CONTAINED = "in a container or control group with more CPUs (docker run --cpuset-cpus, AllowedCPUs)"


def openmp_hazards(environ: Mapping[str, str]) -> list[str]:
    """A line for each OpenMP variable that takes a worker's CPUs away after it was bound.

    With any of them, libgomp binds the thread that loads it, which is the main thread at `import
    torch`, to one place, by default one hardware thread. DataLoader workers inherit that, and
    GOMP_CPU_AFFINITY even leaves the mask it was given. (Measured with the libgomp of torch 2.13 on
    Linux; the libgomp manual, "Environment Variables". OMP_PROC_BIND=false turns all three off.)
    """
    proc_bind = environ.get(PROC_BIND, "").strip().lower()
    if proc_bind == "false":
        return []
    effects = {
        PROC_BIND: "binds the worker's main thread to one place",
        PLACES: "binds the worker's main thread to its first place",
        GOMP: "moves the worker to these CPUs, whatever its binding",
    }
    if proc_bind.split(",")[0].strip() not in _BINDS:
        del effects[PROC_BIND]
    return [
        f"{name}={environ[name]} {effect}, often a single CPU, and DataLoader workers inherit it: "
        f"unset it, or set {PROC_BIND}=false"
        for name, effect in effects.items()
        if environ.get(name, "").strip()
    ]


def of_mask(
    node: hardware.Node,
    bindings: Sequence[apply.Binding],
    local_size: int,
    environ: Mapping[str, str],
) -> list[str]:
    """One line where the allowed CPUs are the wrong ones or too few, with the cure."""
    allowed = node.cpus_allowed
    if not allowed:
        return []
    tasks = local_size // len(bindings)
    devices = [node.devices[each.device] for each in bindings if each.device is not None]
    for device, near in [(each, each.local_cpus) for each in devices if each.local_cpus]:
        if not near & allowed:
            return [
                f"the allowed CPUs {cpuset.format(allowed)} are not next to device {device.number} "
                f"({device.address}), whose CPUs are {cpuset.format(near)}: start "
                + wider(node, environ, tasks, near)
            ]
    mine, there = count_cores(node, allowed), len(node.cores)
    has_room = any(binding.threads > 1 for binding in bindings) or there < 2 * local_size
    if mine >= there or (has_room and mine >= len(bindings)):
        return []
    return [
        f"the mask allows {mine} core{'s' * (mine != 1)} (CPUs {cpuset.format(allowed)}) of "
        f"{there}, one for each rank at most: start {wider(node, environ, tasks)}"
    ]


def wider(
    node: hardware.Node, environ: Mapping[str, str], tasks: int, near: cpuset.CpuSet = cpuset.EMPTY
) -> str:
    """How to start with another mask, by who has set this one.

    `tasks` are on this node; `near` are the CPUs of which none is allowed.
    """
    group = node.cpus_cgroup
    is_free = group is None or bool(near & group if near else group > node.cpus_allowed)
    for manager in managers.around(environ):
        if manager.wider:
            return manager.wider(node, environ, tasks, near, is_free) or UNMASKED
    return UNMASKED if is_free else CONTAINED


def of_shares(
    ranks: Sequence[claims.Claimant],
    usable: cpuset.CpuSet,
    shares: Sequence[Share],
    policy: values.Policy,
) -> Iterator[str]:
    """Lines where shares are not what ranks should have."""
    away = [rank.local_rank for rank in ranks if rank.claim is None]
    if away:
        yield (
            f"{claims.named(away)}: none of the allowed CPUs is next to the device; all allowed "
            f"CPUs ({cpuset.format(usable)}) are shared"
        )
    mine = [(r.local_rank, shares[r.claim]) for r in ranks if r.claim is not None]
    crowded = [rank for rank, share in mine if not share.alone]
    if crowded:
        yield f"{claims.named(crowded)}: there are fewer cores than ranks, so ranks share cores"
    short = [rank for rank, share in mine if policy.threads and len(share.cores) < policy.threads]
    if short:
        yield f"{claims.named(short)}: there are fewer than {policy.threads} cores for each"

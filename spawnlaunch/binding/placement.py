"""The lines about bindings: a line for each rank, the srun options for the same, and warnings.

spawnlaunch respects masks and variables that were set before, and names those that do harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from spawnlaunch.base import cpuset, reading
from spawnlaunch.binding import apply, claims
from spawnlaunch.binding.cores import Share, count_cores
from spawnlaunch.cli import values
from spawnlaunch.node import hardware
from spawnlaunch.world import managers

PROC_BIND, PLACES, GOMP = "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"
KMP = "KMP_AFFINITY"
_BINDS = frozenset({"true", "close", "spread", "master", "primary"})
# Types of KMP_AFFINITY that bind; with a list of processors "explicit" may be left out.
_KMP_BINDS = ("balanced", "compact", "explicit", "logical", "physical", "scatter", "proclist")
# Variables of the number of threads: with MKL, torch prefers the first to the second.
OMP = "OMP_NUM_THREADS"
THREADS = ("MKL_NUM_THREADS", OMP)


def report_line(
    rank: int, binding: apply.Binding, node: hardware.Node, omp: int | str, host: str = ""
) -> str:
    """The line about a rank's binding; `omp` is the OMP_NUM_THREADS that it gets.

    `host` is given where lines of several hosts come together.

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
    """The name of a device, `gpu 3 0000:ce:00.0`, with its tile or partition if it is one."""
    if number is None:
        return ""
    device = node.devices[number]
    part = "" if device.partition is None else f" {device.kind} {device.partition}"
    return f"gpu {number} {device.address}{part}"


def srun_line(bindings: Sequence[apply.Binding], nodes: int) -> str | None:
    """The options that make srun bind tasks in the same way; None where ranks are not pinned.

    srun would ignore --ntasks-per-node without --ntasks, for the --ntasks of the job (srun(1)).
    """
    if not bindings or not all(binding.cpus for binding in bindings):
        return None
    masks = ",".join(cpuset.format_mask(binding.cpus) for binding in bindings)
    tasks = nodes * len(bindings)
    sizes = f"--nodes={nodes} --ntasks={tasks}"
    return f"srun --kill-on-bad-exit=1 {sizes} --cpu-bind=mask_cpu:{masks}"


# Warnings

UNMASKED = "without the taskset or numactl that has set it, or with more CPUs in its list"
ISOLATED = "isolcpus or an isolated cpuset"
CONTAINED = "in a container or control group with more CPUs (docker run --cpuset-cpus, AllowedCPUs)"


def openmp_hazards(environ: Mapping[str, str]) -> list[str]:
    """A line for each OpenMP variable that takes CPUs from a worker after it was bound.

    With any of them, libgomp binds the thread that loads it, which is the main thread at `import
    torch`, to one place, by default one hardware thread. DataLoader workers inherit that, and
    GOMP_CPU_AFFINITY even binds to CPUs outside the mask. (Measured with the libgomp of torch 2.13
    on Linux; the libgomp manual, "Environment Variables". OMP_PROC_BIND=false turns all three off.)

    The OpenMP of Intel and LLVM does the same for KMP_AFFINITY, with any OMP_PROC_BIND (measured
    with intel-openmp 2026.2; openmp.llvm.org, "Environment Variables"); libgomp does not.
    """
    kmp, lines = environ.get(KMP, ""), []
    if any(word.strip().startswith(_KMP_BINDS) for word in kmp.lower().split(",")):
        lines.append(
            f"{KMP}={kmp} keeps the worker's main thread, what it starts and DataLoader workers on "
            "one core, where OpenMP is Intel's or LLVM's: unset it, or set it to disabled"
        )
    proc_bind = environ.get(PROC_BIND, "").strip().lower()
    if proc_bind == "false":
        return lines
    effects = {
        PROC_BIND: "binds the worker's main thread to one place",
        PLACES: "binds the worker's main thread to its first place",
        GOMP: "moves the worker to these CPUs, whatever its binding",
    }
    if proc_bind.split(",")[0].strip() not in _BINDS:
        del effects[PROC_BIND]
    return lines + [
        f"{name}={environ[name]} {effect}, often a single CPU, and DataLoader workers inherit it: "
        f"unset it, or set {PROC_BIND}=false"
        for name, effect in effects.items()
        if environ.get(name, "").strip()
    ]


def threads_by_variable(environ: Mapping[str, str]) -> dict[str, int]:
    """The numbers of threads that the user asks for, by variable.

    In a list the first number is for the outermost loops. OpenMP ignores other text.
    """
    texts = {name: environ.get(name, "") for name in THREADS}
    return {
        name: int(text.partition(",")[0])
        for name, text in texts.items()
        if reading.are_threads(text)
    }


def of_threads(
    node: hardware.Node, bindings: Sequence[apply.Binding], environ: Mapping[str, str]
) -> list[str]:
    """The warning where the user asks for no number of threads, or more than a rank has CPUs."""
    counts, omp = threads_by_variable(environ), environ.get(OMP, "")
    lines = []
    if omp.strip() and OMP not in counts:
        lines = [
            f"{OMP}={omp} is not a number of threads, which for OpenMP is 1 or more: "
            f"each rank has one for each core, as without it; unset {OMP}"
        ]
    cpus = {each.local_rank: cpus_of(node, each) for each in bindings}
    beyond = {name: number for name, number in counts.items() if number > min(cpus.values())}
    if not beyond:
        return lines
    ranks = [rank for rank, count in cpus.items() if count < max(beyond.values())]
    fewest, most = (choose(cpus[rank] for rank in ranks) for choose in (min, max))
    fewest_to_most = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    settings = " and ".join(f"{name}={environ[name].strip()}" for name in beyond)
    return [
        *lines,
        f"{settings}: more threads than the {fewest_to_most} CPU{'' if most == 1 else 's'} of "
        f"{claims.named(ranks)}, so they wait for each other; unset {' '.join(beyond)}, and each "
        "rank has one for each core",
    ]


def cpus_of(node: hardware.Node, binding: apply.Binding) -> int:
    """The number of CPUs on which a rank runs."""
    return len(binding.cpus or node.cpus_to_share or node.cpus_online)


def of_mask(
    node: hardware.Node,
    bindings: Sequence[apply.Binding],
    local_size: int,
    environ: Mapping[str, str],
) -> list[str]:
    """The warning where the allowed CPUs are far from devices or too few, with the remedy."""
    allowed = node.cpus_to_share
    if not allowed:
        return []
    tasks = local_size // len(bindings)
    devices = [node.devices[each.device] for each in bindings if each.device is not None]
    places = [each.local_cpus for each in devices if each.local_cpus]
    if allowed <= node.isolated:  # `of_isolated` has the warning about these
        return []
    for device in devices:
        near = device.local_cpus
        if near and not near & allowed:
            if tasks > 1:  # this task does not know the devices of the others
                places = [each.local_cpus for each in node.devices if each.local_cpus]
            why = ""
            if near <= node.isolated:
                isolated = cpuset.format(node.isolated)
                why = f"{ISOLATED} keeps CPUs {isolated} from all that do not name them; "
            return [
                f"the allowed CPUs {cpuset.format(allowed)} are not next to device {device.number} "
                f"({device.address}), whose CPUs are {cpuset.format(near)}: "
                f"{why}start {nearer(node, environ, near, places)}"
            ]
    mine, there = count_cores(node, allowed), count_cores(node, node.cpus_online - node.isolated)
    has_room = any(binding.threads > 1 for binding in bindings) or there < 2 * local_size
    if mine >= there or (has_room and mine >= len(bindings)):
        return []
    return [
        f"the mask allows {mine} core{'s' * (mine != 1)} (CPUs {cpuset.format(allowed)}) of "
        f"{there}, one for each rank at most: start {wider(node, environ)}"
    ]


def of_isolated(node: hardware.Node, bindings: Sequence[apply.Binding]) -> list[str]:
    """The warning about ranks that have isolated CPUs only."""
    cpus = {each.local_rank: each.cpus or node.cpus_to_share for each in bindings}
    ranks = [
        rank
        for rank, cpus_of_rank in cpus.items()
        if cpus_of_rank and cpus_of_rank <= node.isolated
    ]
    if not ranks:
        return []
    places = [node.devices[each.device].local_cpus for each in bindings if each.device is not None]
    others = (node.cpus_cgroup or node.cpus_online) - node.isolated
    cure = "boot without isolcpus for them"
    if others and all(near is None or near & others for near in places):
        cure = f"use others, such as {cpuset.format(others)} (taskset -c, --bind)"
    isolated = cpuset.format(cpuset.EMPTY.union(*(cpus[rank] for rank in ranks)))
    return [
        f"{claims.named(ranks)}: the CPUs {isolated} are isolated ({ISOLATED}), and the kernel "
        f"moves no thread from one to another, so all threads of a rank stay on one; {cure}"
    ]


def nearer(
    node: hardware.Node,
    environ: Mapping[str, str],
    near: cpuset.CpuSet,
    places: Sequence[cpuset.CpuSet],
) -> str:
    """Return how to start with some of the CPUs `near`; `places`: CPUs next to each device."""
    if not near <= node.isolated:
        return wider(node, environ, near)
    return f"with taskset -c {cpuset.format(isolated_near(node, places))}"


def isolated_near(node: hardware.Node, places: Sequence[cpuset.CpuSet]) -> cpuset.CpuSet:
    """The isolated CPUs that could be allowed; those next to devices, where places are known."""
    near = cpuset.EMPTY.union(*places) or node.cpus_online
    return near & node.isolated & (node.cpus_cgroup or node.cpus_online)


def wider(
    node: hardware.Node, environ: Mapping[str, str], near: cpuset.CpuSet = cpuset.EMPTY
) -> str:
    """Return how to start with more CPUs, or with some of `near`, of which none is allowed."""
    group = node.cpus_cgroup
    is_free = group is None or bool(near & group if near else group > node.cpus_allowed)
    ways = (each.more_cpus(node.cpus_allowed, is_free) for each in managers.mentioned(environ))
    return next(filter(None, ways), UNMASKED if is_free else CONTAINED)


def of_shares(
    ranks: Sequence[claims.Claimant], shares: Sequence[Share], policy: values.Policy
) -> Iterator[str]:
    """Yield the warnings about shares that are worse than ranks should have."""
    if away := [rank.local_rank for rank in ranks if rank.is_away]:
        yield (
            f"{claims.named(away)}: none of the allowed CPUs is next to the device; the nearest "
            "that other ranks leave are taken"
        )
    mine = [(rank.local_rank, shares[rank.claim]) for rank in ranks]
    crowded = [rank for rank, share in mine if not share.is_exclusive]
    if crowded:
        yield f"{claims.named(crowded)}: there are fewer cores than ranks, so ranks share cores"
    short = [rank for rank, share in mine if policy.threads and len(share.cores) < policy.threads]
    if short:
        yield f"{claims.named(short)}: there are fewer than {policy.threads} cores for each"

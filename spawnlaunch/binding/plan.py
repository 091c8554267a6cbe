"""Where does each rank sit: a pure function of the node, the devices, the ranks and the policy."""

from __future__ import annotations

from spawnlaunch import cpuset
from spawnlaunch.binding import ground as grounds
from spawnlaunch.binding import seats, territory, wide
from spawnlaunch.binding.ground import Core, Ground
from spawnlaunch.binding.seats import Seat, Seating, Task
from spawnlaunch.cpuset import EMPTY, CpuSet
from spawnlaunch.errors import UsageError
from spawnlaunch.node import Node
from spawnlaunch.node.visible import Visible
from spawnlaunch.records import NamedTuple
from spawnlaunch.values import AUTO, DEFAULT, LIST, NONE, Policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

LOCAL, REMOTE, UNKNOWN = "local", "remote", "unknown"


class Binding(NamedTuple):
    """Where one rank sits."""

    local_rank: int
    device: int | None  # Device.number; None: no device, or it cannot be told which
    cpus: CpuSet  # empty: not pinned
    memory_nodes: frozenset[int]  # NUMA nodes beside these CPUs; empty: leave the policy alone
    threads: int  # physical cores for this rank alone: what OMP_NUM_THREADS should be
    locality: str  # of the CPUs to the device: "local", "remote" (not all are) or "unknown"
    note: str  # what is unusual about it; empty: nothing


class Plan(NamedTuple):
    """The bindings that were asked for, in the order of local ranks."""

    bindings: tuple[Binding, ...]
    warnings: tuple[str, ...]


def plan(
    node: Node,
    visible: Visible,
    local_size: int,
    policy: Policy = DEFAULT,
    *,
    allowed: CpuSet | None = None,
    task: Task | None = None,
) -> Plan:
    """Bind the `local_size` ranks of this node, or with `task` that one of them.

    Rank r uses the r-th visible device. `allowed` are the CPUs that may be used, by default those
    of the node's record; nothing outside them is ever bound. Raises UsageError for lists of CPUs
    that do not fit the ranks or the allowed CPUs.
    """
    allowed = node.cpus_allowed if allowed is None else allowed & node.cpus_online
    ground = grounds.ground(node, allowed, policy)
    if task is None:
        seating = seats.of_node(node, visible, local_size, ground.cpus)
    else:
        seating = seats.of_task(node, visible, local_size, ground.cpus, task)
    sharers = 1 if task is not None and task.own_mask else local_size
    if policy.name == NONE or not allowed:
        bindings = _unbound(node, seating, allowed, policy, sharers)
        warnings = _no_masks(policy)
    elif policy.name == LIST:
        bindings, warnings = _listed(node, seating, allowed, policy)
    else:
        bindings, warnings = _shared_out(node, seating, ground, policy, sharers)
    every = (*ground.warnings, *seating.warnings, *_unidentified(seating), *warnings)
    return Plan(tuple(bindings), tuple(dict.fromkeys(every)))


def _no_masks(policy: Policy) -> list[str]:
    if policy.name in (NONE, AUTO):  # auto is what is best here, and here that is nothing
        return []
    return [f"this system has no CPU masks: ranks are not bound, in spite of {policy.name}"]


def _unbound(
    node: Node, seating: Seating, allowed: CpuSet, policy: Policy, sharers: int
) -> list[Binding]:
    cores = sum(1 for core in node.cores if core & (allowed or node.cpus_online))
    threads = policy.threads or max(1, cores // sharers)
    return [
        Binding(
            local_rank=seat.local_rank,
            device=seat.device,
            cpus=EMPTY,
            memory_nodes=EMPTY,
            threads=threads,
            locality=locality(node, seat, allowed) if allowed else UNKNOWN,
            note="",
        )
        for seat in seating.seats
    ]


def _listed(
    node: Node, seating: Seating, allowed: CpuSet, policy: Policy
) -> tuple[list[Binding], list[str]]:
    bindings = []
    warnings = []
    for seat in seating.seats:
        if seat.local_rank >= len(policy.lists):
            raise UsageError(
                f"--bind lists CPUs for {len(policy.lists)} local ranks and there is a rank "
                f"{seat.local_rank}; give one list for each, separated by colons"
            )
        asked = policy.lists[seat.local_rank]
        cpus = asked & allowed
        if not cpus:
            raise UsageError(
                f"--bind gives local rank {seat.local_rank} the CPUs {cpuset.format(asked)!r} and "
                f"allowed are {cpuset.format(allowed)}; choose among these"
            )
        if cpus != asked:
            warnings.append(
                f"local rank {seat.local_rank}: of the CPUs {cpuset.format(asked)} only "
                f"{cpuset.format(cpus)} are allowed"
            )
        cores = sum(1 for core in node.cores if core & cpus)
        bindings.append(_binding(node, seat, cpus, policy.threads or cores, ""))
    return bindings, warnings


def _shared_out(
    node: Node, seating: Seating, ground: Ground, policy: Policy, sharers: int
) -> tuple[list[Binding], list[str]]:
    """Exclusive shares, and for the policies of whole domains the domains around them."""
    shares = territory.shares(seating.claims, _aligned(ground.cores, policy), policy.threads)
    cpus = [EMPTY.union(*(core.cpus for core in share.cores)) for share in shares]
    if policy.name in wide.SHARED:
        device_of = {seat.claim: seat.device for seat in seating.seats}
        devices = [device_of.get(i) for i in range(len(cpus))]
        cpus = wide.widened(policy.name, node, devices, cpus, ground.cpus)
    bindings = []
    for seat in seating.seats:
        if seat.claim is None:
            threads = max(1, len(ground.cores) // sharers)
            note = "no allowed CPU is next to its device"
            bindings.append(_binding(node, seat, ground.cpus, threads, note))
        else:
            share = shares[seat.claim]
            note = "" if share.alone else "shares cores"
            bindings.append(_binding(node, seat, cpus[seat.claim], len(share.cores), note))
    complaints = _complaints(seating, ground, shares, policy)
    return bindings, [*wide.missing(policy.name, node), *complaints]


def _aligned(cores: Sequence[Core], policy: Policy) -> Sequence[Core]:
    """The cores with their L3 groups for `auto`; the other policies know none, as in torchrun."""
    if policy.name == AUTO:
        return cores
    return [core._replace(l3=grounds.APART) for core in cores]


def _binding(node: Node, seat: Seat, cpus: CpuSet, threads: int, note: str) -> Binding:
    how = locality(node, seat, cpus)
    return Binding(
        local_rank=seat.local_rank,
        device=seat.device,
        cpus=cpus,
        memory_nodes=memory_beside(node, cpus),
        threads=threads,
        locality=how,
        note=note or ("it is not known where its device is" if how == UNKNOWN else ""),
    )


def locality(node: Node, seat: Seat, cpus: CpuSet) -> str:
    """Whether all CPUs are next to the device or on its NUMA node; a rank without one is local."""
    if seat.device is None:
        return LOCAL if seat.known else UNKNOWN
    device = node.devices[seat.device]
    if device.local_cpus is None:
        return UNKNOWN
    at_home = EMPTY.union(*(each.cpus for each in node.numa if each.id == device.numa))
    return LOCAL if cpus <= device.local_cpus or cpus <= at_home else REMOTE


def memory_beside(node: Node, cpus: CpuSet) -> frozenset[int]:
    """The NUMA nodes to allocate from: those of the CPUs, where they have memory that is allowed.

    Else the nearest that have. A node without CPUs is never among them: it may be the memory of a
    GPU, and no driver need say so.
    """
    fit = [
        each
        for each in node.numa
        if each.kind == "cpu" and each.memory != 0 and each.id in node.memory_nodes
    ]
    beside = frozenset(each.id for each in fit if each.cpus & cpus)
    if beside:
        return beside
    known: dict[int, int] = {}
    for home in node.numa:
        for other, distance in home.distances if home.cpus & cpus else ():
            if any(each.id == other for each in fit):
                known[other] = min(distance, known.get(other, distance))
    nearest = min(known.values(), default=None)
    return frozenset(id for id, distance in known.items() if distance == nearest)


def _unidentified(seating: Seating) -> list[str]:
    ranks = [seat.local_rank for seat in seating.seats if not seat.known]
    if not ranks:
        return []
    return [
        f"{_ranks(ranks)}: which device it is cannot be told from the list of visible devices; "
        "the cores are shared out without regard to it"
    ]


def _complaints(
    seating: Seating, ground: Ground, shares: Sequence[territory.Share], policy: Policy
) -> list[str]:
    lines = []
    away = [seat.local_rank for seat in seating.seats if seat.claim is None]
    if away:
        lines.append(
            f"{_ranks(away)}: none of the allowed CPUs is next to the device; all allowed CPUs "
            f"({cpuset.format(ground.cpus)}) are shared"
        )
    mine = [(s.local_rank, shares[s.claim]) for s in seating.seats if s.claim is not None]
    crowded = [rank for rank, share in mine if not share.alone]
    if crowded:
        lines.append(f"{_ranks(crowded)}: there are fewer cores than ranks, so ranks share cores")
    short = [rank for rank, share in mine if policy.threads and len(share.cores) < policy.threads]
    if short:
        lines.append(f"{_ranks(short)}: there are fewer than {policy.threads} cores for each")
    return lines


def _ranks(ranks: Sequence[int]) -> str:
    noun = "local rank" if len(ranks) == 1 else "local ranks"
    return f"{noun} {cpuset.format(ranks)}"

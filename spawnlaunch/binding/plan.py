"""Where does each rank sit: a pure function of the node, the devices, the ranks and the policy."""

from __future__ import annotations

from spawnlaunch import cpuset, errors, records, values
from spawnlaunch.binding import apply, claims, report
from spawnlaunch.binding.cores import count_cores, share_out, usable_cores, widened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch import flags
    from spawnlaunch.node import hardware
    from spawnlaunch.node.visible import Visible
    from spawnlaunch.world import identity

NEAR, FAR, UNTOLD = "local", "remote", "unknown"  # what Binding.locality may say


class Plan(records.NamedTuple):
    """The bindings that were asked for, in the order of local ranks."""

    bindings: tuple[apply.Binding, ...]
    allowed: cpuset.CpuSet  # all that may be used here, reserved ones too
    warnings: tuple[str, ...]


def bind_ranks(
    request: flags.Request,
    node: hardware.Node,
    seen: Visible,
    resolution: identity.Resolution,
) -> Plan:
    """The bindings of the ranks that this launcher starts, and all warnings about this node.

    Raises UsageError.
    """
    world, environ = resolution.world, resolution.environ
    warnings = [*node.warnings, *seen.warnings, *report.openmp_hazards(environ)]
    if request.widen:
        node, refusal = widened(node)
        warnings += refusal
    task, rank, size = None, world.local_rank, world.local_world_size
    if world.is_task:
        devices, masks = resolution.ask_around("step_devices"), resolution.ask_around("masks")
        own_mask = claims.is_own_mask(node, masks.value if masks else (), rank, size)
        step_devices = claims.step_devices(node, devices.value if devices else (), size)
        task = claims.TaskView(rank, step_devices, own_mask)
    planned = plan(node, seen, size, request.policy, task=task)
    warnings += [*planned.warnings, *report.of_mask(node, planned.bindings, size, environ)]
    # Where there is one node to allocate from, the kernel prefers it without being asked.
    no_choice = len(node.memory_nodes) < 2 and request.mem_bind == values.PREFERRED_MEM
    mem_bind = values.NO_MEM if no_choice else request.mem_bind
    return planned._replace(
        bindings=tuple(binding._replace(mem_bind=mem_bind) for binding in planned.bindings),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def plan(
    node: hardware.Node,
    visible: Visible,
    local_size: int,
    policy: values.Policy = values.DEFAULT,
    *,
    task: claims.TaskView | None = None,
) -> Plan:
    """Bind the `local_size` ranks of this node, or with `task` that one of them.

    Rank r uses the r-th visible device; no CPU is bound that the node's record does not allow.
    Raises UsageError for lists of CPUs that do not fit the ranks or the allowed CPUs.
    """
    warnings: list[str] = []
    cores = usable_cores(node, policy, policy.name == values.AUTO, warnings)
    usable = cpuset.EMPTY.union(*(core.cpus for core in cores))
    if task is None:
        made = claims.of_node(node, usable, visible, local_size)
    else:
        made = claims.of_task(node, usable, visible, local_size, task)
    warnings += made.warnings
    if policy.name == values.NONE or not node.cpus_allowed:
        bindings = _unbound(node, made, policy, warnings)
    elif policy.name == values.LIST:
        bindings = [_listed(node, rank, policy, warnings) for rank in made.ranks]
    else:
        shares = share_out(made.cpus, cores, policy.threads)
        if policy.name in (values.NUMA_NODE, values.SOCKET, values.CORE_COMPLEX):
            from spawnlaunch.binding import domains

            shares = domains.domains_around(policy.name, node, made.ranks, shares, usable, warnings)
        bindings = []
        for rank in made.ranks:
            cpus, threads = usable, max(1, len(cores) // made.sharers)
            note = "no allowed CPU is next to its device"
            if rank.claim is not None:
                cpus, threads = shares[rank.claim].cpus, len(shares[rank.claim].cores)
                note = "" if shares[rank.claim].alone else "shares cores"
            bindings.append(_binding(node, rank, cpus, threads, note))
        warnings += report.of_shares(made.ranks, usable, shares, policy)
    return Plan(tuple(bindings), node.cpus_allowed, tuple(dict.fromkeys(warnings)))


def _unbound(
    node: hardware.Node, made: claims.Claims, policy: values.Policy, warnings: list[str]
) -> list[apply.Binding]:
    """Ranks that are not bound, which share the allowed CPUs."""
    # "auto" means what is best here, which is nothing where there are no masks.
    if policy.name not in (values.NONE, values.AUTO):
        warnings.append(
            f"this system has no CPU masks: ranks are not bound, in spite of {policy.name}"
        )
    allowed, none = node.cpus_allowed, cpuset.EMPTY
    cores = count_cores(node, allowed or node.cpus_online)
    threads = policy.threads or max(1, cores // made.sharers)
    return [
        apply.Binding(
            rank.local_rank, rank.device, none, none, threads,
            locality(node, rank.device, rank.known, allowed) if allowed else UNTOLD, "",
        )
        for rank in made.ranks
    ]  # fmt: skip


def _listed(
    node: hardware.Node, rank: claims.Claimant, policy: values.Policy, warnings: list[str]
) -> apply.Binding:
    number, allowed = rank.local_rank, node.cpus_allowed
    if number >= len(policy.lists):
        raise errors.UsageError(
            f"--bind lists CPUs for {len(policy.lists)} local ranks and there is a rank "
            f"{number}; give one list for each, separated by colons"
        )
    asked = policy.lists[number]
    cpus = asked & allowed
    if not cpus:
        raise errors.UsageError(
            f"--bind gives local rank {number} the CPUs {cpuset.format(asked)!r} and "
            f"allowed are {cpuset.format(allowed)}; choose among these"
        )
    if cpus != asked:
        warnings.append(
            f"local rank {number}: of the CPUs {cpuset.format(asked)} only "
            f"{cpuset.format(cpus)} are allowed"
        )
    return _binding(node, rank, cpus, policy.threads or count_cores(node, cpus), "")


def _binding(
    node: hardware.Node, rank: claims.Claimant, cpus: cpuset.CpuSet, threads: int, note: str
) -> apply.Binding:
    how = locality(node, rank.device, rank.known, cpus)
    return apply.Binding(
        local_rank=rank.local_rank, device=rank.device, cpus=cpus,
        memory_nodes=memory_beside(node, cpus), threads=threads, locality=how,
        note=note or ("it is not known where its device is" if how == UNTOLD else ""),
    )  # fmt: skip


def locality(node: hardware.Node, number: int | None, known: bool, cpus: cpuset.CpuSet) -> str:
    """Whether all CPUs are next to the device or on its NUMA node; a rank without one is local.

    `known` is False for a rank that has a device while it cannot be told which.
    """
    if number is None:
        return NEAR if known else UNTOLD
    device = node.devices[number]
    if device.local_cpus is None:
        return UNTOLD
    at_home = cpuset.EMPTY.union(*(each.cpus for each in node.numa if each.id == device.numa))
    return NEAR if cpus <= device.local_cpus or cpus <= at_home else FAR


def memory_beside(node: hardware.Node, cpus: cpuset.CpuSet) -> frozenset[int]:
    """The NUMA nodes to allocate from: those of the CPUs, where they have memory that is allowed.

    Else the nearest that have. A node without CPUs is never among them: it may be the memory of a
    GPU, and no driver need say so.
    """
    fit = {
        each.id: each.cpus
        for each in node.numa
        if each.kind == "cpu" and each.memory != 0 and each.id in node.memory_nodes
    }
    beside = frozenset(id for id, near in fit.items() if near & cpus)
    if beside:
        return beside
    known = [
        (distance, other)
        for home in node.numa
        for other, distance in (home.distances if home.cpus & cpus else ())
        if other in fit
    ]
    nearest = min((distance for distance, _ in known), default=None)
    return frozenset(other for distance, other in known if distance == nearest)

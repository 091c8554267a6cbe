"""Plan the binding of each rank: a pure function of node, devices, ranks and policy."""

from __future__ import annotations

from collections.abc import Sequence

from spawnlaunch.base import cpuset, errors, records
from spawnlaunch.binding import apply, claims, placement
from spawnlaunch.binding.cores import Share, count_cores, cpus_of, share_out, usable_cores, widened
from spawnlaunch.cli import flags, values
from spawnlaunch.node import cgroup, hardware
from spawnlaunch.node.visible import Visible
from spawnlaunch.world import identity

NEAR, FAR, UNTOLD = "local", "remote", "unknown"  # the values of Binding.locality


class Plan(records.NamedTuple):
    """The bindings of the planned ranks, in the order of local ranks."""

    bindings: tuple[apply.Binding, ...]
    allowed: cpuset.CpuSet  # all allowed CPUs, reserved ones too
    warnings: tuple[str, ...]
    shared: cpuset.CpuSet = cpuset.EMPTY  # those of the allowed CPUs that ranks divide


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
    warnings = [*node.warnings, *seen.warnings, *placement.openmp_hazards(environ)]
    if request.widen:
        node, refusal = widened(node)
        warnings += refusal
    size = world.local_world_size
    task = view_of_task(node, resolution) if world.is_task else None
    planned = plan(node, seen, size, request.policy, task=task)
    bindings = planned.bindings
    warnings += [*planned.warnings, *placement.of_mask(node, bindings, size, environ)]
    warnings += placement.of_isolated(node, bindings, size)
    warnings += placement.of_threads(node, bindings, environ)
    if node.quotas:
        bindings, lines = _within_quota(request, node, seen, resolution, bindings)
        warnings += lines
    bindings, lines = _with_memory(request, node, bindings, world.is_task)
    return planned._replace(
        bindings=bindings,
        shared=node.cpus_to_share,
        warnings=tuple(dict.fromkeys([*warnings, *lines])),
    )


def view_of_task(node: hardware.Node, resolution: identity.Resolution) -> claims.TaskView:
    """The facts about the other tasks on this node, from the managers around this task."""
    world = resolution.world
    rank, size = world.local_rank, world.local_world_size
    devices, masks = resolution.step_devices(), resolution.masks()
    has_private_mask = claims.is_private_mask(node, masks.value if masks else (), rank, size)
    step_devices = claims.step_devices(node, devices.value if devices else (), size)
    return claims.TaskView(rank, step_devices, has_private_mask)


def _within_quota(
    request: flags.Request,
    node: hardware.Node,
    seen: Visible,
    resolution: identity.Resolution,
    bindings: tuple[apply.Binding, ...],
) -> tuple[tuple[apply.Binding, ...], list[str]]:
    """Reduce the threads of bindings to the quota; return them with a line on what it changes.

    The kernel throttles a control group that has used up its quota until the period ends
    (scheduler/sched-bwc.rst), so a rank with more threads than its part of the quota stands still
    for most of the time. Masks stay: a quota limits time, and not the set of CPUs. A task divides
    the quota with the others on its node, unless it is alone in the group. The user's own numbers
    of threads stay, and the line names those that exceed the quota.
    """
    world = resolution.world
    size = world.local_world_size
    may_be_alone = world.is_task and size > 1 and request.is_live
    sharers = [1 if may_be_alone and cgroup.holds_alone(each) else size for each in node.quotas]
    part, quota = min(
        ((each.cpus / n, each) for each, n in zip(node.quotas, sharers, strict=True)),
        key=lambda each: each[0],
    )
    most = max(1, int(part))
    before = max(binding.threads for binding in bindings)
    user_threads = placement.threads_by_variable(resolution.environ)
    cpus = min(placement.cpus_of(node, each) for each in bindings)
    # `placement.of_threads` already warns of more threads than CPUs.
    beyond = [f"{name}={number}" for name, number in user_threads.items() if most < number <= cpus]
    if request.threads is None:
        bindings = tuple(each._replace(threads=min(each.threads, most)) for each in bindings)
    elif before > most and not user_threads:
        beyond = [f"--threads {request.threads}"]

    effects = []
    nproc, count = resolution.sources.get("local_world_size"), len(node.cpus_to_share)
    words = (" cpu",) if seen.names else (" cpu", " auto")
    if nproc and nproc.source.endswith(words) and node.most_workers < count:
        effects.append(f"{nproc.source} starts {_some(node.most_workers, 'worker')}, not {count}")
    ranks = "the rank" if part == quota.cpus else f"each of {size} ranks"
    if beyond:
        effects.append(
            f"{' and '.join(beyond)} is more than {_some(most, 'thread')} for {ranks}, so they are "
            "throttled; leave it out"
        )
    elif before > most and not user_threads:
        effects.append(f"{ranks} computes with {_some(most, 'thread')}, not {before}")
    if size > 1 and part < 1:
        effects.append(f"{ranks} has the time of {part:.2g} CPUs, so start fewer")
    if not effects:
        return bindings, []
    time = f"{quota.cpus:.3g} CPU{'' if quota.cpus == 1 else 's'}"
    return bindings, [
        f"the control group has a quota of {time} ({quota.path}): {'; '.join(effects)}"
    ]


def _some(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _with_memory(
    request: flags.Request,
    node: hardware.Node,
    bindings: tuple[apply.Binding, ...],
    is_task: bool,
) -> tuple[tuple[apply.Binding, ...], list[str]]:
    """Add the memory policy to the bindings; return them with warnings about it."""
    warnings: list[str] = []
    mem_bind = request.mem_bind or values.PREFERRED_MEM
    # Where there is one node to allocate from, the kernel needs no policy to prefer it.
    if len(node.memory_nodes) < 2 and mem_bind == values.PREFERRED_MEM:
        mem_bind = values.NO_MEM
    placed = [binding for binding in bindings if binding.cpus and binding.memory_nodes]
    if placed and mem_bind == values.PREFERRED_MEM and request.mem_bind is None and request.is_live:
        inherited = apply.memory_policy()
        if inherited is not None and inherited.mode != apply.MODES[0]:
            policy = f"{inherited.mode} {cpuset.format(inherited.nodes)}".strip()
            warnings.append(
                f"the memory policy {policy} was inherited (numactl, srun --mem-bind) and stays; "
                "for memory next to each rank's CPUs use --mem-bind preferred"
            )
            mem_bind = values.NO_MEM
    # Kernels refuse policies by their number of nodes, so the rank with most nodes reports. A task
    # knows its own policy only.
    speaker = 0 if is_task else max(bindings, key=lambda each: len(each.memory_nodes)).local_rank
    return tuple(
        binding._replace(mem_bind=mem_bind, reports_memory=binding.local_rank == speaker)
        for binding in bindings
    ), warnings


def plan(
    node: hardware.Node,
    visible: Visible,
    local_size: int,
    policy: values.Policy = values.DEFAULT,
    *,
    task: claims.TaskView | None = None,
) -> Plan:
    """Plan the bindings of the node's `local_size` ranks, or with `task` of that rank only.

    Rank r uses the r-th visible device; ranks get only CPUs that the node's record allows. Raises
    UsageError for lists of CPUs that do not fit the ranks or the allowed CPUs.
    """
    warnings: list[str] = []
    cores = usable_cores(node, policy, policy.name == values.AUTO, warnings)
    if task is None:
        of_ranks = claims.of_node(node, cores, visible, local_size)
    else:
        of_ranks = claims.of_task(node, cores, visible, local_size, task)
    warnings += of_ranks.warnings
    if policy.name == values.NONE or not node.cpus_allowed:
        sharers = 1 if task and task.has_private_mask else local_size
        bindings = _unbound(node, of_ranks, policy, sharers, warnings)
    elif policy.name == values.LIST:
        bindings = [_listed(node, rank, policy, warnings) for rank in of_ranks.ranks]
    else:
        shares = share_out(of_ranks.all, cores, policy.threads)
        if policy.name in (values.NUMA_NODE, values.SOCKET, values.CORE_COMPLEX):
            usable = cpus_of(cores)
            shares = _widen_to_domains(policy.name, node, of_ranks.ranks, shares, usable, warnings)
        bindings = []
        for rank in of_ranks.ranks:
            share = shares[rank.claim]
            note = "" if share.is_exclusive else "shares cores"
            note = "no allowed CPU is next to its device" if rank.is_away else note
            threads = min(len(share.cores), count_cores(node, share.cpus))
            bindings.append(_binding(node, rank, share.cpus, threads, note))
        warnings += placement.of_shares(of_ranks.ranks, shares, policy)
    return Plan(tuple(bindings), node.cpus_allowed, tuple(dict.fromkeys(warnings)))


def _widen_to_domains(
    policy: str,
    node: hardware.Node,
    ranks: Sequence[claims.Claimant],
    shares: Sequence[Share],
    usable: cpuset.CpuSet,
    warnings: list[str],
) -> list[Share]:
    """Widen the exclusive shares of ranks to the usable CPUs of whole domains.

    The names and meanings of these policies are torchrun's. Where torchrun would use NUMA node 0
    for an unknown one, or fail on a domain without allowed CPUs, the rank gets the domain of its
    own share. Several ranks may share a domain.
    """
    exclusive = [share.cpus for share in shares]
    if policy == values.CORE_COMPLEX:
        if not node.l3:
            warnings.append(
                f"L3 groups are not known here: {values.CORE_COMPLEX} binds to exclusive shares"
            )
        domains = _core_complexes(node, exclusive)
    else:
        domains = _numa_nodes(node, ranks, exclusive)
        if policy == values.SOCKET:
            if not node.packages:
                warnings.append(f"packages are not known here: {values.SOCKET} binds to NUMA nodes")
            domains = [_touched(node.packages, domain) or domain for domain in domains]
    return [
        share._replace(cpus=domain & usable or share.cpus)
        for share, domain in zip(shares, domains, strict=True)
    ]


def _numa_nodes(
    node: hardware.Node, ranks: Sequence[claims.Claimant], shares: Sequence[cpuset.CpuSet]
) -> list[cpuset.CpuSet]:
    """The CPUs of each device's NUMA node; where that is unknown, of the share's NUMA nodes."""
    device_of = {rank.claim: rank.device for rank in ranks}
    domains = []
    for claim, share in enumerate(shares):
        device = device_of.get(claim)
        home = None if device is None else node.devices[device].numa
        at_home = cpuset.EMPTY.union(*(each.cpus for each in node.numa if each.id == home))
        domains.append(at_home or _touched([each.cpus for each in node.numa], share) or share)
    return domains


def _touched(groups: Sequence[cpuset.CpuSet], cpus: cpuset.CpuSet) -> cpuset.CpuSet:
    return cpuset.EMPTY.union(*(group for group in groups if group & cpus))


def _core_complexes(node: hardware.Node, shares: Sequence[cpuset.CpuSet]) -> list[cpuset.CpuSet]:
    """For each rank, the L3 group with most of its share, if possible another one for each rank."""
    taken: set[cpuset.CpuSet] = set()
    chosen = []
    for share in shares:
        near = [group for group in node.l3 if group & share]
        fresh = [group for group in near if group not in taken]
        best = max(fresh or near, key=lambda group: len(group & share), default=share)
        taken.add(best)
        chosen.append(best)
    return chosen


def _unbound(
    node: hardware.Node,
    of_ranks: claims.Claims,
    policy: values.Policy,
    sharers: int,
    warnings: list[str],
) -> list[apply.Binding]:
    """The bindings of unbound ranks, which share the allowed CPUs among `sharers` ranks in all."""
    # "auto" chooses the best policy for this machine, which is no binding where it has no masks.
    if policy.name not in (values.NONE, values.AUTO):
        warnings.append(
            f"this system has no CPU masks: ranks are not bound, in spite of {policy.name}"
        )
    allowed, none = node.cpus_to_share, cpuset.EMPTY
    cores = count_cores(node, allowed or node.cpus_online)
    threads = policy.threads or max(1, cores // sharers)
    return [
        apply.Binding(
            rank.local_rank, rank.device, none, none, threads,
            locality(node, rank.device, rank.known, allowed) if allowed else UNTOLD, "",
        )
        for rank in of_ranks.ranks
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
    wanted = policy.lists[number]
    cpus = wanted & allowed
    if not cpus:
        raise errors.UsageError(
            f"--bind gives local rank {number} the CPUs {cpuset.format(wanted)!r} and "
            f"allowed are {cpuset.format(allowed)}; choose among these"
        )
    if cpus != wanted:
        warnings.append(
            f"local rank {number}: of the CPUs {cpuset.format(wanted)} only "
            f"{cpuset.format(cpus)} are allowed"
        )
    return _binding(node, rank, cpus, policy.threads or count_cores(node, cpus), "")


def _binding(
    node: hardware.Node, rank: claims.Claimant, cpus: cpuset.CpuSet, threads: int, note: str
) -> apply.Binding:
    place = locality(node, rank.device, rank.known, cpus)
    return apply.Binding(
        local_rank=rank.local_rank, device=rank.device, cpus=cpus,
        memory_nodes=memory_beside(node, cpus), threads=threads, locality=place,
        note=note or ("it is not known where its device is" if place == UNTOLD else ""),
    )  # fmt: skip


def locality(node: hardware.Node, number: int | None, known: bool, cpus: cpuset.CpuSet) -> str:
    """Whether all CPUs are next to the device or on its NUMA node; a rank without one is local.

    `known` is False for a rank with an unknown device.
    """
    if number is None:
        return NEAR if known else UNTOLD
    device = node.devices[number]
    if device.local_cpus is None:
        return UNTOLD
    at_home = cpuset.EMPTY.union(*(each.cpus for each in node.numa if each.id == device.numa))
    return NEAR if cpus <= device.local_cpus or cpus <= at_home else FAR


def memory_beside(node: hardware.Node, cpus: cpuset.CpuSet) -> frozenset[int]:
    """The NUMA nodes to allocate from: those of the CPUs, where they have allowed memory.

    Else the nearest nodes with such memory. A node without CPUs is never among them: it may be the
    memory of a GPU, which not every driver shows.
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

"""Derive the World: rank, sizes, local rank, and where rank 0 listens.

`resolve_world` derives, in this order: the manager that started this process, the mode, the ranks,
the inherited variables that count, and from all that the address and port of rank 0. Each value is
a Fact, which knows its source. Most answers come from the environment; for some managers this room
reads parent processes or a file of hosts. It starts no program and asks no other launcher: every
launcher of a job comes to the same result by itself. (Where several launchers meet, rank, world
size and MASTER_PORT are provisional here, and the hub assigns the final ones.) `prepare_host` then
looks for a port and an interface of this machine.
"""

from __future__ import annotations

from collections.abc import Iterator

from spawnlaunch.base import errors, machine, say
from spawnlaunch.cli import flags, values
from spawnlaunch.world import identity, inherited, managers, master, ranks
from spawnlaunch.world.host import LockedPort

INHERITED = frozenset((*identity.RANKS, *identity.MASTER, *identity.OUTER))


def resolve_world(
    request: flags.Request, environ: identity.Environ, hostname: str, capacity: identity.Capacity
) -> identity.Resolution:
    """Derive the world, with its notices.

    Raises UsageError on a contradiction, or where only the user knows a value.
    """
    if "SLURM_" in " ".join(environ):
        from spawnlaunch.world.managers import slurm

        if missing := slurm.missing(request, environ):
            from spawnlaunch.world import refusals

            refusals.refuse_missing(request, missing)
    mentioned = managers.mentioned(environ)
    present = [manager for manager in mentioned if manager.is_present()]
    why_stale = ""
    if (
        present
        and present[0].gives_ranks
        and (why_stale := inherited.why_no_pods(request, environ))
    ):
        present = present[1:]
    manager = present[0] if present else identity.Manager(environ)
    evidence = identity.Evidence(request, environ, hostname, capacity, manager)
    resolution = _derive(evidence, why_stale)
    notices = (*resolution.notices, *_find_notices(evidence, resolution.world))
    return resolution._replace(notices=notices, managers=tuple(present), mentioned=tuple(mentioned))


def _derive(evidence: identity.Evidence, why_stale: str) -> identity.Resolution:
    """Derive the world from the flags, the manager and the inherited variables.

    `why_stale` is the reason why variables of a platform count as left by others, or "".
    """
    request, environ = evidence.request, evidence.environ
    mode = ranks.choose_mode(evidence)
    facts = {"mode": mode, **ranks.find_ranks(evidence, mode.value)}
    # The authority on where rank 0 listens is the manager, or none.
    decides_itself = mode.value == identity.LOCAL or ranks.is_overruled(evidence)
    authority = evidence._replace(manager=identity.Manager(environ)) if decides_itself else evidence
    job, host = authority.manager.job(), master.find_host(authority, facts)
    variables: inherited.Inherited | None = None
    if not INHERITED.isdisjoint(environ):
        variables = inherited.read_inherited(authority, facts, host)
    accepted = variables.accepted if variables else {}
    addr, port = accepted.get("MASTER_ADDR"), accepted.get("MASTER_PORT")
    facts["master_addr"] = master.choose_address(authority, facts, host, addr)
    facts["master_port"] = master.choose_port(authority, facts, job, port)
    facts["run_id"] = _name_run(mode.value, evidence, job)
    gathering: identity.Gathering | None = None
    if mode.value == identity.NODE or request.no_gang:
        facts, gathering = _gather(authority, facts, job, evidence.manager)
    lines: list[str] = []
    if variables is not None:
        facts = inherited.add_rejected(facts, variables, environ)
        lines = inherited.find_warnings(facts, variables, environ)
    if why_stale:  # which says more than that these variables are replaced
        lines = [why_stale]
    world = identity.World(**{name: fact.value for name, fact in facts.items()})
    notices = say.notices(say.JOB, lines)
    return identity.Resolution(world, facts, notices, (), environ, gathering=gathering)


def _gather(
    authority: identity.Evidence,
    facts: identity.Facts,
    job: identity.Fact | None,
    starter: identity.Manager,
) -> tuple[identity.Facts, identity.Gathering | None]:
    """Add how the launchers of several nodes meet, and mark the facts that the hub assigns."""
    request = authority.request
    if request.no_gang:
        if request.spares or request.is_elastic:
            raise errors.FlagsError(
                "with --no-gang the launchers of several nodes never meet, and --spares and "
                "--nnodes MIN:MAX need that; leave --no-gang out"
            )
        return facts, None
    if facts["nnodes"].value + request.spares == 1:
        return facts, None
    from spawnlaunch.world import meeting

    gathering = meeting.find(authority, facts, job, starter)
    return meeting.mark_assigned(facts, gathering), gathering


def _name_run(mode: str, evidence: identity.Evidence, job: identity.Fact | None) -> identity.Fact:
    """The run's name, equal in all its launchers; "none" where nothing equal in all names it."""
    if evidence.request.rdzv_id is not None:
        return identity.Fact(evidence.request.rdzv_id, "--rdzv-id")
    if mode != identity.LOCAL:
        return job or identity.Fact("none", "torchrun's default: nothing here names the run")
    manager = evidence.manager
    job = manager.job() or identity.Fact(machine.name_now(), identity.CHANCE)
    if manager.kind != identity.TASKS:
        return job
    tasks, rank = manager.world_size(), manager.rank()
    if tasks is None or tasks.value == 1 or rank is None:
        return job
    # In local mode each of several tasks is a launch of its own.
    return identity.Fact(
        f"{job.value}-{rank.value}", f"{job.source}, and {rank.source} of this task"
    )


def refuse_copies(request: flags.Request, resolution: identity.Resolution) -> None:
    """Raise UsageError for one of several tasks without any of the manager's variables.

    Where stdin is a terminal, a person has started this process, and not as one of several tasks:
    then nothing is checked.
    """
    is_unmanaged = resolution.world.mode == identity.LOCAL and not resolution.managers
    if not is_unmanaged or request.standalone or machine.isatty(0):
        return
    from spawnlaunch.node import proc

    pid = proc.nearest(managers.STARTERS)
    if pid is not None:
        from spawnlaunch.world import refusals

        refusals.refuse_task_without_variables(request, pid)


def prepare_host(
    resolution: identity.Resolution, hostname: str
) -> tuple[identity.Resolution, LockedPort | None]:
    """Hold rank 0's port on this machine, and find the interface that other nodes can reach.

    Raises UsageError where the port is in use.
    """
    me, address = resolution.world, resolution.sources["master_addr"]
    is_typed = identity.is_named(address, resolution.environ) or address.source.endswith(
        "--master-suffix"
    )
    if me.rank != 0 and not me.has_several_nodes and not is_typed:
        return resolution, None
    from spawnlaunch.world import host  # most tasks need none of it

    port: LockedPort | None = None
    if is_typed and not me.has_several_nodes:
        resolution = host.check_address(resolution)
    if me.rank == 0 and resolution.gathering is None:
        resolution, port = host.listen(resolution)
    if me.has_several_nodes:
        exports, lines = host.find_interface(resolution.world, resolution.environ, hostname)
        resolution = resolution._replace(exports=exports).with_notices(say.NODE, *lines)
    return resolution, port


# Notices about mistakes that are common on clusters


def _find_notices(evidence: identity.Evidence, world: identity.World) -> Iterator[say.Notice]:
    """Yield the notices about the job, for rank 0 alone, and those that each node prints."""
    manager, request = evidence.manager, evidence.request
    if world.rank == 0 or request.explain:  # only these print them
        if manager.has_steps and world.mode == identity.LOCAL:
            yield from say.notices(say.JOB, _of_a_shell_elsewhere(evidence, world))
        if world.is_task and world.local_world_size > 1 and not request.virtual_local_rank:
            yield from say.notices(say.JOB, _of_few_devices(evidence, world.local_world_size))
    if manager.gives_ranks:
        yield from say.notices(say.NODE, inherited.taken_for_a_pods(world, evidence.environ))
    if manager.kind == identity.HOSTS and world.mode == identity.NODE:
        yield from say.notices(say.NODE, _of_waiting_hosts(evidence))


def _of_few_devices(evidence: identity.Evidence, tasks: int) -> Iterator[str]:
    """Warn where a task sees fewer devices than its node has tasks, such as its own device only."""
    devices, vendor = evidence.capacity.devices, evidence.capacity.vendor
    if not 0 < devices < tasks or vendor == "google":  # torch has no index of a TPU
        return
    kind = next((kind for kind, maker in values.KINDS.items() if maker == vendor), "cuda")
    lists = [name for name in evidence.capacity.devices_by.split(", ") if name in evidence.environ]
    by = (
        f" ({', '.join(f'{name}={evidence.environ[name]}' for name in lists)} here)"
        if lists
        else ""
    )
    message, fails = f"each task sees one device{by}", "not 0"
    if devices > 1:
        message = f"each of the {tasks} tasks on this node sees {devices} devices{by}"
        fails = f"above {devices - 1}"
    yield (
        f"{message}, so {kind}:LOCAL_RANK fails where LOCAL_RANK is {fails}; --virtual-local-rank "
        "makes LOCAL_RANK 0 in every task, and shows it one device"
    )


def _of_a_shell_elsewhere(evidence: identity.Evidence, world: identity.World) -> Iterator[str]:
    """Warn where a job's shell, as salloc's on a login node, is on no node of its job."""
    from spawnlaunch.world import refusals
    from spawnlaunch.world.managers import slurm

    shell, here = evidence.manager, evidence.hostname
    if isinstance(shell, slurm.Shell) and shell.is_outside(here):
        line = refusals.launcher_per_node(evidence.request, shell, world.local_world_size)
        nodes = f"{slurm.JOB_NODELIST}={shell.environ[slurm.JOB_NODELIST]}"
        yield (
            f"this shell is on {here}, which is not a node of its job ({nodes}); to run there, run "
            f"{line}"
        )


def _of_waiting_hosts(evidence: identity.Evidence) -> Iterator[str]:
    """Warn on a host that is first in a job's list of hosts, or not in it: it waits for others."""
    request, manager, hosts = evidence.request, evidence.manager, evidence.manager.hosts()
    by_flags = (request.nnodes, request.node_rank, request.rdzv_endpoint, request.master_addr)
    if hosts is None or request.no_gang or any(value is not None for value in by_flags):
        return
    listed = f"{manager.name} lists {len(hosts.value)} hosts ({hosts.source})"
    standalone = "for this machine alone use --standalone"
    node_rank = ranks.known_node_rank(evidence)
    has_address = any(name[:1].isdigit() or ":" in name for name in hosts.value)  # maybe ours
    if node_rank is None and not has_address:
        yield (
            f"{listed}, and none has this one's name, {evidence.hostname}: this launcher waits "
            f"for one on each of the others; {standalone}"
        )
    if node_rank is not None and node_rank.value == 0:
        from spawnlaunch.world import refusals

        line = refusals.launcher_per_node(request, manager, 1)
        yield (
            f"{listed}, and this launcher waits for one on each of the others; to start them all "
            f"from here, run {line}; {standalone}"
        )

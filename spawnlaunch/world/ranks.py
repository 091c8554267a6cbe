"""Derive mode, rank, sizes and node rank from the flags and the manager.

Every function derives facts from the evidence alone, or raises a UsageError that ends in the
command to run.
"""

from __future__ import annotations

from spawnlaunch.base import errors, machine
from spawnlaunch.cli import values
from spawnlaunch.world import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch.cli import flags


def choose_mode(it: identity.Evidence) -> identity.Fact:
    """Choose one of the three modes, with its source. Raises UsageError on a contradiction."""
    request, manager = it.request, it.manager
    if request.standalone:
        return _standalone(request)
    if request.nnodes == (1, 1) and not request.node_rank:
        return _on_one_node(it)
    if manager is None:
        if request.nnodes is not None:
            return identity.Fact(identity.NODE, "--nnodes")
        if request.node_rank:
            raise errors.UsageError(
                "--node-rank without --nnodes says nothing; type --nnodes N as well"
            )
        return identity.Fact(identity.LOCAL, "no resource manager found")
    if manager.kind == identity.HOSTS:
        return _mode_among_hosts(it)
    if manager.kind == identity.TASKS:
        if manager.has_task_variables and not request.is_by_hand and _is_in_a_worker(it.environ):
            return identity.Fact(identity.LOCAL, "within a worker of another launcher")
        if not request.wants_launcher:
            return identity.Fact(identity.TASK, f"{manager.name} started one process per rank")
        _refuse_several_launchers(it, manager)
    return identity.Fact(identity.NODE, f"{manager.name} started one launcher per node")


def _is_in_a_worker(environ: identity.Environ) -> bool:
    """Whether this launcher runs within a worker, which has a task's variables but is no task."""
    pid = environ.get(identity.WITNESS)
    if pid is None or identity.MARK not in environ:
        return False
    from spawnlaunch.node import proc

    return pid in (str(machine.getpid()), *(str(above) for above, _ in proc.above()))


def _refuse_several_launchers(it: identity.Evidence, manager: identity.Manager) -> None:
    """Raise UsageError where a launcher was started in each of several tasks on a node."""
    several = several_tasks(it)
    if several is not None:
        from spawnlaunch.world import refusals

        refusals.refuse_several_launchers(it, manager, several)


def _standalone(request: flags.Request) -> identity.Fact:
    """Return local mode for --standalone. Raises UsageError where a flag names several nodes."""
    said = (
        ("--nnodes", request.nnodes and request.nnodes.most, 1),
        ("--node-rank", request.node_rank, 0),
    )
    for flag, value, of_one_node in said:
        if value is not None and value > of_one_node:
            raise errors.UsageError(
                f"--standalone is one machine, and {flag} {value} says that there are several; "
                "leave one of the two out"
            )
    return identity.Fact(identity.LOCAL, "--standalone")


def _on_one_node(it: identity.Evidence) -> identity.Fact:
    """Return local mode for --nnodes 1.

    Raises UsageError inside a job with several nodes, where each node would be a job of its own.
    """
    manager, nnodes = it.manager, None
    if manager and manager.kind == identity.TASKS:
        _refuse_several_launchers(it, manager)
    if manager and manager.kind != identity.HOSTS:
        nnodes = _nodes_of_the_manager(it)
    if nnodes is not None and nnodes.value > 1:
        raise errors.UsageError(
            f"--nnodes 1, but {nnodes.source} says {nnodes.value} nodes, each with a launcher; "
            "leave --nnodes out, or type --standalone for a job of its own on each node"
        )
    return identity.Fact(identity.LOCAL, "--nnodes 1")


def several_tasks(it: identity.Evidence) -> identity.Fact | None:
    """The number of tasks on this node or another, where it is more than one; else None."""
    here, local_rank = (
        it.any_manager.local_world_size(it.environ),
        it.any_manager.local_rank(it.environ),
    )
    if here is not None and here.value > 1:
        return here
    if local_rank is not None and local_rank.value > 0:
        return identity.Fact(local_rank.value + 1, f"{local_rank.source} is {local_rank.value}")
    tasks, nodes = it.any_manager.world_size(it.environ), it.any_manager.nnodes(it.environ)
    if tasks is not None and nodes is not None and tasks.value > nodes.value > 0:
        source = f"{tasks.value} tasks ({tasks.source}) on {nodes.value} nodes ({nodes.source})"
        return identity.Fact(-(-tasks.value // nodes.value), source)
    return None


def _mode_among_hosts(it: identity.Evidence) -> identity.Fact:
    """Choose the mode in a job that lists hosts only: local for one host, node for several.

    Raises UsageError where a shell leaves nodes or tasks of its job idle, and where the number of
    hosts is unknown.
    """
    request, manager = it.request, it.manager
    assert manager is not None
    nnodes, tasks = _nodes_of_the_manager(it), it.any_manager.world_size(it.environ)
    if request.is_by_hand:
        return identity.Fact(identity.NODE, "--nnodes and --node-rank")
    has_several = nnodes is not None and nnodes.value > 1
    if manager.has_steps:
        if has_several or (tasks is not None and tasks.value > 1 and not request.wants_launcher):
            from spawnlaunch.world import refusals

            refusals.refuse_idle_shell(it, manager, nnodes, tasks)
    elif nnodes is None:
        raise errors.UsageError(
            f"{manager.why_silent('nnodes')}, so {manager.name} may have given this job several "
            "hosts; type --standalone if it is this one alone, else --nnodes N --node-rank N "
            "--master-addr HOST"
        )
    elif has_several:
        return identity.Fact(
            identity.NODE, f"{manager.name} lists {nnodes.value} hosts ({nnodes.source})"
        )
    return identity.Fact(identity.LOCAL, f"{manager.name}, on one node")


def _ranks_of_this_machine(it: identity.Evidence) -> identity.Facts:
    """The ranks in local mode: one launcher starts all workers."""
    nproc, alone = _count_workers(it), "local mode"
    rank = identity.Fact(0, "first worker of this launcher")
    return _of_a_launcher(it, rank, nproc, nproc, identity.Fact(0, alone), identity.Fact(1, alone))


def _ranks_of_a_task(it: identity.Evidence) -> identity.Facts:
    """The ranks in task mode: the manager or a flag gives each value."""
    facts = {
        "rank": _known("rank", it.any_manager.rank(it.environ), it),
        "world_size": _known(
            "world_size", it.any_manager.world_size(it.environ), it, it.request.world_size
        ),
        "local_rank": _known("local_rank", it.any_manager.local_rank(it.environ), it),
        "local_world_size": _known(
            "local_world_size",
            it.any_manager.local_world_size(it.environ),
            it,
            it.request.local_world_size,
        ),
    }
    one_node = facts["world_size"].value == facts["local_world_size"].value
    by_manager = {
        "node_rank": (it.any_manager.node_rank(it.environ), 0),
        "nnodes": (it.any_manager.nnodes(it.environ), 1),
    }
    for question, (fact, alone) in by_manager.items():
        derived = identity.Fact(alone, "all ranks are on this node") if one_node else None
        facts[question] = identity.first([fact, derived]) or identity.UNKNOWN
    _check_ranks(facts)
    return facts


def _known(
    question: str,
    by_manager: identity.Fact | None,
    it: identity.Evidence,
    given: int | None = None,
) -> identity.Fact:
    """Return an answer that task mode needs. Raises UsageError where nothing gives it."""
    flag = f"--{question.replace('_', '-')}"
    by_flag = it.typed(flag, given)
    _check_same(by_flag, by_manager)
    fact = identity.first([by_flag, by_manager])
    if fact is None:
        assert it.manager is not None
        has_flag = question in ("world_size", "local_world_size")
        what = f"type {flag} N" if has_flag else f"type export {question.upper()}=N for each"
        raise errors.UsageError(f"{it.manager.why_silent(question)}; {what}")
    return fact


def _check_same(by_flag: identity.Fact | None, derived: identity.Fact | None) -> None:
    """Raise UsageError where a flag gives another size than the derived one."""
    if by_flag and derived and by_flag.value != derived.value:
        raise errors.UsageError(
            f"{by_flag.source} {by_flag.value}, but it is {derived.value} ({derived.source}); "
            f"leave {by_flag.source} out"
        )


def _check_ranks(facts: identity.Facts) -> None:
    """Raise UsageError where a rank is not below its size, or a part exceeds the whole.

    That is: rank < world_size, local_rank < local_world_size, node_rank < nnodes, and neither
    local_world_size nor nnodes exceeds world_size.
    """
    here = facts["local_world_size"]
    if here.value > values.MOST_LOCAL:
        raise errors.UsageError(
            f"{here.source} says {here.value} ranks on this node, more than the "
            f"{values.MOST_LOCAL} processes that a machine has by default; unset what an outer "
            "launcher left"
        )
    for part, whole, least in (
        ("rank", "world_size", 1),
        ("local_rank", "local_world_size", 1),
        ("node_rank", "nnodes", 1),
        ("local_world_size", "world_size", 0),
        ("nnodes", "world_size", 0),
    ):
        one, other = facts[part], facts[whole]
        if None not in (one.value, other.value) and one.value + least > other.value:
            raise errors.UsageError(
                f"{one.source} says {part.replace('_', ' ')} {one.value} and {other.source} says "
                f"{whole.replace('_', ' ')} {other.value}, which cannot both be; unset what an "
                "outer launcher left"
            )


def _ranks_of_a_node(it: identity.Evidence) -> identity.Facts:
    """The ranks in node mode: node rank and number of workers make the ranks of a node."""
    request, nnodes = it.request, _count_nodes(it)
    node_rank = _find_node_rank(it, nnodes)
    nproc = _count_workers(it)
    if node_rank.value is not None and node_rank.value >= nnodes.value + request.spares:
        raise errors.UsageError(
            f"node rank {node_rank.value} ({node_rank.source}) cannot be with {nnodes.value} nodes "
            f"({nnodes.source}); type --node-rank N, from 0 to {nnodes.value - 1}, on each"
        )
    if nnodes.value > 1 and isinstance(request.nproc, str) and request.no_gang:
        raise errors.UsageError(
            f"--nproc {request.nproc} is {nproc.value} on this node, and with --no-gang no "
            f"launcher hears what each of the {nnodes.value} nodes has, so the ranks of all might "
            f"not fit together; if each has {nproc.value}, type --nproc={nproc.value}; else leave "
            "--no-gang out"
        )
    rank = identity.Fact((node_rank.value or 0) * nproc.value, f"node rank x {nproc.source}")
    if node_rank.value is not None and node_rank.value >= nnodes.value:
        node_rank = identity.Fact(None, "a spare, which has none")
        rank = rank._replace(value=nproc.value)
    world_size = identity.Fact(nnodes.value * nproc.value, f"nodes x {nproc.source}")
    return _of_a_launcher(it, rank, world_size, nproc, node_rank, nnodes)


# Rank, sizes and node rank, by mode. Each raises UsageError.
FIND_RANKS = {
    identity.TASK: _ranks_of_a_task,
    identity.NODE: _ranks_of_a_node,
    identity.LOCAL: _ranks_of_this_machine,
}


def _of_a_launcher(
    it: identity.Evidence,
    rank: identity.Fact,
    world_size: identity.Fact,
    nproc: identity.Fact,
    node_rank: identity.Fact,
    nnodes: identity.Fact,
) -> identity.Facts:
    """Return the facts of a launcher's workers.

    Raises UsageError where --world-size or --local-world-size differs from the sizes that --nproc
    gives.
    """
    for flag, given, derived in (
        ("--world-size", it.request.world_size, world_size),
        ("--local-world-size", it.request.local_world_size, nproc),
    ):
        if given is not None:
            _check_same(it.typed(flag, given), derived)
    return {
        "rank": rank,
        "world_size": world_size,
        "local_rank": identity.Fact(0, "first worker of this launcher"),
        "local_world_size": nproc,
        "node_rank": node_rank,
        "nnodes": nnodes,
    }


def _count_workers(it: identity.Evidence) -> identity.Fact:
    """The number of workers that this launcher starts. Raises UsageError."""
    asked = identity.first(
        [it.typed("--nproc", it.request.nproc), it.any_manager.nproc(it.environ)]
    )
    fact = asked or identity.Fact(1, "one worker: --nproc is not given")
    devices, devices_by = it.capacity.devices, it.capacity.devices_by
    if isinstance(fact.value, str):
        return _count_by_word(fact, it.capacity)
    if 0 < devices < fact.value and not it.request.oversubscribe:
        by = f" ({devices_by})" if devices_by else ""
        said, flag = _nproc_as_typed(fact)
        first = f"export {it.capacity.meant}, or " if it.capacity.meant else ""
        raise errors.UsageError(
            f"{said}, but {devices} visible device{'s' * (devices > 1)}{by}; type {first}{flag} "
            f"{devices}, or --oversubscribe for several ranks on one device, or {flag} cpu"
        )
    return fact


def _count_by_word(fact: identity.Fact, capacity: identity.Capacity) -> identity.Fact:
    """Count workers for a word of --nproc: auto, gpu, cpu or a vendor's kind of device."""
    word, devices, vendor = fact.value, capacity.devices, capacity.vendor
    is_other = word in values.KINDS and vendor != values.KINDS[word]
    may_be_cpus = word == "cpu" or (word == "auto" and capacity.are_counted)
    if is_other or (devices == 0 and not may_be_cpus):
        said, flag = _nproc_as_typed(fact)
        kind = "GPU" if word == "auto" else word.upper()
        reason, cure = f": {capacity.why}" if capacity.why else "", f"{flag} N"
        if is_other and vendor:
            reason = f" (what is {'visible' if devices else 'here'} is of {vendor})"
        elif capacity.meant:
            reason, cure = f": {capacity.why.partition('; type ')[0]}", f"export {capacity.meant}"
        elif capacity.unset:
            cure = f"unset {' '.join(capacity.unset)}"
        raise errors.UsageError(
            f"{said}: no {kind} is visible here{reason}; type {cure}, or {flag} cpu"
        )
    count = capacity.cpus if word == "cpu" else devices or capacity.cpus
    if not count:
        said, flag = _nproc_as_typed(fact)
        raise errors.UsageError(f"{said}: no CPU is visible here; type {flag} N")
    return fact._replace(value=count, source=f"{fact.source} {word}")


def _nproc_as_typed(fact: identity.Fact) -> tuple[str, str]:
    """Return the flag or variable with its value, as the user wrote it, and the flag's name."""
    if fact.source.startswith("--"):
        return f"{fact.source} {fact.value}", fact.source
    return f"{fact.source}={fact.value}", "--nproc"


def _nodes_of_the_manager(it: identity.Evidence) -> identity.Fact | None:
    hosts = it.any_manager.hosts(it.environ)
    by_list = identity.Fact(len(hosts.value), hosts.source) if hosts else None
    by_tasks = (
        it.any_manager.world_size(it.environ)
        if it.manager and it.manager.kind == identity.TASKS
        else None
    )
    return identity.first([it.any_manager.nnodes(it.environ), by_list, by_tasks])


def _count_nodes(it: identity.Evidence) -> identity.Fact:
    request, by_manager = it.request, _nodes_of_the_manager(it)
    by_flag = it.typed("--nnodes", request.nnodes and request.nnodes.most)
    if by_manager and request.spares:
        n, source = by_manager.value - request.spares, f"{by_manager.source} without --spares"
        by_manager = by_manager._replace(value=n, source=source)
    if by_flag and by_manager and by_flag.value != by_manager.value and not request.is_by_hand:
        raise errors.UsageError(
            f"--nnodes {by_flag.value}, but {by_manager.source} says {by_manager.value} nodes; "
            "leave --nnodes out, or give --node-rank and --master-addr too"
        )
    fact = identity.first([by_flag, by_manager])
    if fact is None:
        default = "nothing says how many nodes there are"
        why = it.manager.why_silent("nnodes") if it.manager else default
        raise errors.UsageError(f"{why}; type --nnodes N")
    if fact.value < 1:
        raise errors.UsageError(f"{fact.source} says {fact.value} nodes; type --nnodes N")
    return fact


def _find_node_rank(it: identity.Evidence, nnodes: identity.Fact) -> identity.Fact:
    fact = known_node_rank(it)
    if fact is None and it.request.no_gang:
        raise errors.UsageError(
            f"nothing here says which of the {nnodes.value} nodes this is; "
            f"type --node-rank N, from 0 to {nnodes.value - 1}, on each"
        )
    return fact or identity.Fact(None, "by the order of the nodes' names")


def known_node_rank(it: identity.Evidence) -> identity.Fact | None:
    """Return this node's rank, from --node-rank, the manager or a list of hosts; else None."""
    by_flag = it.typed("--node-rank", it.request.node_rank)
    return identity.first([by_flag, _node_rank_of_the_manager(it) or _position(it)])


def _node_rank_of_the_manager(it: identity.Evidence) -> identity.Fact | None:
    """Return the manager's node rank; or, with one launcher per node, the launcher's task rank."""
    by_rank = (
        it.any_manager.rank(it.environ)
        if it.manager and it.manager.kind == identity.TASKS
        else None
    )
    return identity.first([it.any_manager.node_rank(it.environ), by_rank])


def _position(it: identity.Evidence) -> identity.Fact | None:
    """This host's place in a list of hosts, with or without the domain."""
    hosts = it.any_manager.hosts(it.environ)
    if hosts is None:
        return None
    short = [name.partition(".")[0] for name in hosts.value]
    mine = it.hostname.partition(".")[0]
    if short.count(mine) != 1:
        return None
    return identity.Fact(short.index(mine), f"place of {it.hostname} in {hosts.source}")


def not_listed(it: identity.Evidence) -> tuple[str, ...]:
    """Return a warning where the list of hosts lacks this host, which then waits for all of it."""
    hosts = it.any_manager.hosts(it.environ)
    if hosts is None or it.request.is_by_hand or known_node_rank(it) is not None:
        return ()
    if any(name[:1].isdigit() or ":" in name for name in hosts.value):  # an address may be ours
        return ()
    assert it.manager is not None
    return (
        f"{it.manager.name} lists {len(hosts.value)} hosts ({hosts.source}), and none has this "
        f"one's name, {it.hostname}: this launcher waits for one on each of the others; for this "
        "machine alone type --standalone",
    )


def is_overruled(it: identity.Evidence) -> bool:
    """Whether --nnodes and --node-rank describe another job than the manager's.

    Then the manager's answers may differ between nodes: as where each node's launcher is a step of
    its own, or ssh started a launcher on each host of a list.
    """
    if it.manager is None or not it.request.is_by_hand:
        return False
    nnodes, node_rank = _nodes_of_the_manager(it), _node_rank_of_the_manager(it)
    if it.manager.kind == identity.HOSTS or nnodes is None or node_rank is None:
        return True
    asked = it.request.nnodes
    return (nnodes.value, node_rank.value) != (asked and asked.most, it.request.node_rank)

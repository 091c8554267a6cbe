"""Derive mode, rank, sizes and node rank from the flags and the manager.

Every function derives facts from the evidence alone, or raises a UsageError that ends in the
command to run.
"""

from __future__ import annotations

from spawnlaunch.base import errors, machine
from spawnlaunch.cli import values
from spawnlaunch.world import identity

FIRST_WORKER = identity.Fact(0, "first worker of this launcher")


def choose_mode(evidence: identity.Evidence) -> identity.Fact:
    """Choose one of the three modes, with its source. Raises UsageError on a contradiction."""
    request, manager = evidence.request, evidence.manager
    if request.standalone:
        return _standalone(evidence)
    if request.nnodes == (1, 1) and not request.node_rank:
        return _on_single_node(evidence)
    if manager.kind == identity.NONE:
        if request.nnodes is not None:
            return identity.Fact(identity.NODE, "--nnodes")
        if request.node_rank:
            raise errors.UsageError(
                "--node-rank without --nnodes has no effect; use --nnodes N as well"
            )
        return identity.Fact(identity.LOCAL, "no resource manager found")
    if manager.kind == identity.HOSTS:
        return _mode_among_hosts(evidence)
    if manager.kind == identity.TASKS:
        if not request.is_by_hand and _is_in_a_worker(evidence.environ):
            return identity.Fact(identity.LOCAL, "within a worker of another launcher")
        if not request.wants_launcher:
            return identity.Fact(identity.TASK, f"{manager.name} started one process per rank")
        _refuse_several_launchers(evidence)
    return identity.Fact(identity.NODE, f"{manager.name} started one launcher per node")


def _is_in_a_worker(environ: identity.Environ) -> bool:
    """Whether this launcher runs within a worker, which has a task's variables but is no task."""
    pid = environ.get(identity.WITNESS)
    if pid is None or identity.MARK not in environ:
        return False
    from spawnlaunch.node import proc

    return pid in (str(machine.getpid()), *(str(above) for above, _ in proc.above()))


def _standalone(evidence: identity.Evidence) -> identity.Fact:
    """Return local mode for --standalone. Raises UsageError where a flag names several nodes."""
    request = evidence.request
    most = request.nnodes.most if request.nnodes else 1
    if most > 1 or request.node_rank:
        flag = f"--nnodes {most}" if most > 1 else f"--node-rank {request.node_rank}"
        raise errors.UsageError(
            f"--standalone is one machine, and {flag} is for several; leave one of the two out"
        )
    return identity.Fact(identity.LOCAL, "--standalone")


def _on_single_node(evidence: identity.Evidence) -> identity.Fact:
    """Return local mode for --nnodes 1.

    Raises UsageError inside a job with several nodes, where each node would be a job of its own.
    """
    kind = evidence.manager.kind
    if kind == identity.TASKS:
        _refuse_several_launchers(evidence)
    nnodes = _count_nodes_of(evidence.manager) if kind in (identity.TASKS, identity.NODES) else None
    if nnodes is not None and nnodes.value > 1:
        raise errors.UsageError(
            f"--nnodes 1, but {nnodes.source} says {nnodes.value} nodes, each with a launcher; "
            "leave --nnodes out, or use --standalone for a job of its own on each node"
        )
    return identity.Fact(identity.LOCAL, "--nnodes 1")


def _refuse_several_launchers(evidence: identity.Evidence) -> None:
    """Raise UsageError where a launcher was started in each of several tasks on a node."""
    manager = evidence.manager
    here, local_rank = manager.local_world_size(), manager.local_rank()
    tasks, nodes = manager.world_size(), manager.nnodes()
    if here is not None and here.value > 1:
        n, source = here.value, here.source
    elif local_rank is not None and local_rank.value > 0:
        n, source = local_rank.value + 1, f"{local_rank.source} is {local_rank.value}"
    elif tasks is not None and nodes is not None and tasks.value > nodes.value > 0:
        n = -(-tasks.value // nodes.value)
        source = f"{tasks.value} tasks ({tasks.source}) on {nodes.value} nodes ({nodes.source})"
    else:
        return
    from spawnlaunch.world import refusals

    refusals.refuse_several_launchers(evidence, n, source)


def _mode_among_hosts(evidence: identity.Evidence) -> identity.Fact:
    """Choose the mode in a job that lists hosts only: local for one host, node for several.

    Raises UsageError where a shell leaves nodes or tasks of its job idle, and where the number of
    hosts is unknown.
    """
    request, manager = evidence.request, evidence.manager
    nnodes, tasks = _count_nodes_of(evidence.manager), manager.world_size()
    if request.is_by_hand:
        return identity.Fact(identity.NODE, "--nnodes and --node-rank")
    has_several = nnodes is not None and nnodes.value > 1
    if manager.has_steps:
        if has_several or (tasks is not None and tasks.value > 1 and not request.wants_launcher):
            from spawnlaunch.world import refusals

            refusals.refuse_idle_shell(evidence, nnodes, tasks)
    elif nnodes is None:
        raise errors.UsageError(
            f"{manager.why_silent('nnodes')}, so {manager.name} may have given this job several "
            "hosts; use --standalone if it is this one alone, else --nnodes N --node-rank N "
            "--master-addr HOST"
        )
    elif has_several:
        why = f"{manager.name} lists {nnodes.value} hosts ({nnodes.source})"
        return identity.Fact(identity.NODE, why)
    return identity.Fact(identity.LOCAL, f"{manager.name}, on one node")


def find_ranks(evidence: identity.Evidence, mode: str) -> identity.Facts:
    """Derive rank, sizes and node rank for a mode. Raises UsageError."""
    if mode == identity.TASK:
        return _ranks_of_a_task(evidence)
    facts = (_ranks_of_a_node if mode == identity.NODE else _ranks_of_this_machine)(evidence)
    request = evidence.request
    _check_same(evidence.typed("--world-size", request.world_size), facts["world_size"])
    by_flag = evidence.typed("--local-world-size", request.local_world_size)
    _check_same(by_flag, facts["local_world_size"])
    return facts


def _ranks_of_this_machine(evidence: identity.Evidence) -> identity.Facts:
    """The ranks in local mode: one launcher starts all workers."""
    nproc, why = _count_workers(evidence), "local mode"
    return {
        "rank": FIRST_WORKER,
        "world_size": nproc,
        "local_rank": FIRST_WORKER,
        "local_world_size": nproc,
        "node_rank": identity.Fact(0, why),
        "nnodes": identity.Fact(1, why),
    }


def _ranks_of_a_task(evidence: identity.Evidence) -> identity.Facts:
    """The ranks in task mode: the manager or a flag gives each value."""
    manager, request, facts = evidence.manager, evidence.request, {}
    for question, by_manager, flag_value in (
        ("rank", manager.rank(), None),
        ("world_size", manager.world_size(), request.world_size),
        ("local_rank", manager.local_rank(), None),
        ("local_world_size", manager.local_world_size(), request.local_world_size),
    ):
        flag = f"--{question.replace('_', '-')}"
        by_flag = evidence.typed(flag, flag_value)
        _check_same(by_flag, by_manager)
        fact = identity.first([by_flag, by_manager])
        if fact is None:
            is_flag = question in ("world_size", "local_world_size")
            remedy = f"use {flag} N" if is_flag else f"export {question.upper()}=N for each"
            raise errors.UsageError(f"{manager.why_silent(question)}; {remedy}")
        facts[question] = fact
    is_single_node = identity.is_single_node(facts)
    for question, by_manager, n in (
        ("node_rank", manager.node_rank(), 0),
        ("nnodes", manager.nnodes(), 1),
    ):
        derived = identity.Fact(n, "all ranks are on this node") if is_single_node else None
        facts[question] = identity.first([by_manager, derived]) or identity.UNKNOWN
    _check_ranks(facts)
    return facts


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
        small, large = facts[part], facts[whole]
        if None not in (small.value, large.value) and small.value + least > large.value:
            raise errors.UsageError(
                f"{small.source} says {part.replace('_', ' ')} {small.value} and "
                f"{large.source} says {whole.replace('_', ' ')} {large.value}, which cannot "
                "both be; unset what an outer launcher left"
            )


def _ranks_of_a_node(evidence: identity.Evidence) -> identity.Facts:
    """The ranks in node mode: node rank and number of workers make the ranks of a node."""
    request, nnodes = evidence.request, _count_nodes(evidence)
    numbers = f"--node-rank N, from 0 to {nnodes.value - 1}, on each"
    node_rank, nproc = known_node_rank(evidence), _count_workers(evidence)
    if node_rank is None and request.no_gang:
        raise errors.UsageError(
            f"nothing here gives the rank of this node, of {nnodes.value}; use {numbers}"
        )
    if node_rank is not None and node_rank.value >= nnodes.value + request.spares:
        raise errors.UsageError(
            f"node rank {node_rank.value} ({node_rank.source}) cannot be with {nnodes.value} nodes "
            f"({nnodes.source}); use {numbers}"
        )
    if nnodes.value > 1 and isinstance(request.nproc, str) and request.no_gang:
        raise errors.UsageError(
            f"--nproc {request.nproc} is {nproc.value} on this node, and with --no-gang no "
            f"launcher hears what each of the {nnodes.value} nodes has, so the ranks of all might "
            f"not fit together; if each has {nproc.value}, use --nproc={nproc.value}; else leave "
            "--no-gang out"
        )
    if node_rank is None:
        first, node_rank = 0, identity.Fact(None, "by the order of the nodes' names")
    elif node_rank.value >= nnodes.value:
        first, node_rank = nproc.value, identity.Fact(None, "a spare, which has none")
    else:
        first = node_rank.value * nproc.value
    return {
        "rank": identity.Fact(first, f"node rank x {nproc.source}"),
        "world_size": identity.Fact(nnodes.value * nproc.value, f"nodes x {nproc.source}"),
        "local_rank": FIRST_WORKER,
        "local_world_size": nproc,
        "node_rank": node_rank,
        "nnodes": nnodes,
    }


def _count_workers(evidence: identity.Evidence) -> identity.Fact:
    """The number of workers that this launcher starts. Raises UsageError."""
    capacity, devices = evidence.capacity, evidence.capacity.devices
    wanted = identity.first(
        [evidence.typed("--nproc", evidence.request.nproc), evidence.manager.nproc()]
    )
    fact = wanted or identity.Fact(1, "one worker: --nproc is not given")
    # The flag or the variable with its value, as the user wrote it, and the flag's name.
    flag, mark = (fact.source, " ") if fact.source.startswith("--") else ("--nproc", "=")
    typed = f"{fact.source}{mark}{fact.value}"
    if isinstance(fact.value, str):
        if why := _why_none(fact.value, capacity, flag):
            raise errors.UsageError(f"{typed}: {why}, or use {flag} cpu")
        count = capacity.cpus if fact.value == "cpu" else devices or capacity.cpus
        if not count:
            raise errors.UsageError(f"{typed}: no CPU is visible here; use {flag} N")
        return fact._replace(value=count, source=f"{fact.source} {fact.value}")
    if 0 < devices < fact.value and not evidence.request.oversubscribe:
        by = f" ({capacity.devices_by})" if capacity.devices_by else ""
        first = f"export {capacity.meant}, or " if capacity.meant else ""
        raise errors.UsageError(
            f"{typed}, but {devices} visible device{'s' * (devices > 1)}{by}; {first}use {flag} "
            f"{devices}, or --oversubscribe for several ranks on one device, or {flag} cpu"
        )
    return fact


def _why_none(word: str, capacity: identity.Capacity, flag: str) -> str:
    """Return why a word of --nproc has no device here, and what to do; "" where it has some."""
    is_other = word in values.KINDS and capacity.vendor != values.KINDS[word]
    may_be_cpus = word == "cpu" or (word == "auto" and capacity.are_counted)
    if not is_other and (capacity.devices or may_be_cpus):
        return ""
    reason, remedy = f": {capacity.why}" if capacity.why else "", f"use {flag} N"
    if is_other and capacity.vendor:
        where = "visible" if capacity.devices else "here"
        reason = f" (those that are {where} are of {capacity.vendor})"
    elif capacity.meant:
        reason, remedy = f": {capacity.why.rpartition('; ')[0]}", f"export {capacity.meant}"
    elif capacity.unset:
        remedy = f"unset {' '.join(capacity.unset)}"
    kind = "GPU" if word == "auto" else word.upper()
    return f"no {kind} is visible here{reason}; {remedy}"


def _count_nodes_of(manager: identity.Manager) -> identity.Fact | None:
    """The number of nodes: as exported, or of the hosts, or of tasks, one of which is on each."""
    hosts = manager.hosts()
    by_list = identity.Fact(len(hosts.value), hosts.source) if hosts else None
    by_tasks = manager.world_size() if manager.kind == identity.TASKS else None
    return identity.first([manager.nnodes(), by_list, by_tasks])


def _count_nodes(evidence: identity.Evidence) -> identity.Fact:
    request, by_manager = evidence.request, _count_nodes_of(evidence.manager)
    by_flag = evidence.typed("--nnodes", request.nnodes and request.nnodes.most)
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
        raise errors.UsageError(f"{evidence.manager.why_silent('nnodes')}; use --nnodes N")
    if fact.value < 1:
        raise errors.UsageError(f"{fact.source} says {fact.value} nodes; use --nnodes N")
    return fact


def known_node_rank(evidence: identity.Evidence) -> identity.Fact | None:
    """Return this node's rank, from --node-rank, the manager or a list of hosts; else None."""
    by_flag = evidence.typed("--node-rank", evidence.request.node_rank)
    return identity.first([by_flag, _node_rank_of(evidence.manager) or _position(evidence)])


def _node_rank_of(manager: identity.Manager) -> identity.Fact | None:
    """Return the manager's node rank; or, with one launcher per node, the launcher's task rank."""
    by_rank = manager.rank() if manager.kind == identity.TASKS else None
    return identity.first([manager.node_rank(), by_rank])


def _position(evidence: identity.Evidence) -> identity.Fact | None:
    """This host's place in a list of hosts, with or without the domain."""
    hosts = evidence.manager.hosts()
    short = [name.partition(".")[0] for name in hosts.value] if hosts else []
    mine = evidence.hostname.partition(".")[0]
    if hosts is None or short.count(mine) != 1:
        return None
    return identity.Fact(short.index(mine), f"place of {evidence.hostname} in {hosts.source}")


def is_overruled(evidence: identity.Evidence) -> bool:
    """Whether --nnodes and --node-rank describe another job than the manager's.

    Then the manager's answers may differ between nodes: as where each node's launcher is a step of
    its own, or ssh started a launcher on each host of a list.
    """
    if evidence.manager.kind == identity.NONE or not evidence.request.is_by_hand:
        return False
    nnodes, node_rank = _count_nodes_of(evidence.manager), _node_rank_of(evidence.manager)
    if evidence.manager.kind == identity.HOSTS or nnodes is None or node_rank is None:
        return True
    wanted = evidence.request.nnodes
    return (nnodes.value, node_rank.value) != (wanted and wanted.most, evidence.request.node_rank)

"""Rank, sizes and node rank, for each of the three modes: what the flags and the manager say.

The functions are pure: (request, manager, environment) to a table of facts, or a UsageError that
ends in the command to type.
"""

from __future__ import annotations

from spawnlaunch.errors import UsageError
from spawnlaunch.records import NamedTuple
from spawnlaunch.request import Request
from spawnlaunch.values import MOST_LOCAL
from spawnlaunch.world import slurm
from spawnlaunch.world.facts import UNKNOWN, Environ, Fact, first
from spawnlaunch.world.manager import HOSTS, TASKS, Manager

Facts = dict[str, Fact]

TASK, NODE, LOCAL = "task", "node", "local"


class Capacity(NamedTuple):
    """What this machine has for workers."""

    devices: int  # that a worker sees
    cpus: int  # that are allowed
    devices_by: str = ""  # the variables that show no other device, as CUDA_VISIBLE_DEVICES


def mode_of(request: Request, manager: Manager | None, environ: Environ) -> Fact:
    """Which of the three modes this launch is in, and why. Raises UsageError on a contradiction."""
    among_tasks = manager is not None and manager.kind == TASKS and request.wants_launcher
    if manager is not None and among_tasks and not request.standalone:
        _refuse_several_tasks(request, manager, environ)
    if request.is_standalone:
        return _standalone(request, manager, environ)
    if manager is None:
        return _mode_by_hand(request)
    if manager.kind == HOSTS:
        return _mode_among_hosts(request, manager, environ)
    if manager.kind == TASKS and not request.wants_launcher:
        return Fact(TASK, f"{manager.name} started one process per rank")
    return Fact(NODE, f"{manager.name} started one launcher per node")


def _mode_by_hand(request: Request) -> Fact:
    if request.nnodes is not None:
        return Fact(NODE, "--nnodes")
    if request.node_rank is not None:
        raise UsageError("--node-rank without --nnodes says nothing; type --nnodes N as well")
    return Fact(LOCAL, "no resource manager found")


def _standalone(request: Request, manager: Manager | None, environ: Environ) -> Fact:
    """This machine alone; --nnodes 1 in each of several nodes would make as many jobs of one."""
    if request.standalone:
        _refuse_several_nodes(request)
        return Fact(LOCAL, "--standalone")
    nnodes = _nnodes_of(manager, environ) if manager and manager.kind != HOSTS else None
    if nnodes is not None and nnodes.value > 1:
        raise UsageError(
            f"--nnodes 1, but {nnodes.source} says {nnodes.value} nodes, each with a launcher; "
            "leave --nnodes out, or type --standalone for a job of its own on each node"
        )
    return Fact(LOCAL, "--nnodes 1")


def _refuse_several_nodes(request: Request) -> None:
    """What --standalone cannot mean."""
    said = (("--nnodes", request.nnodes, 1), ("--node-rank", request.node_rank, 0))
    for flag, value, of_one_node in said:
        if value is not None and value > of_one_node:
            raise UsageError(
                f"--standalone is one machine, and {flag} {value} says that there are several; "
                "leave one of the two out"
            )


def _refuse_several_tasks(request: Request, manager: Manager, environ: Environ) -> None:
    """A launcher in each of several tasks on a node would start too many workers."""
    several = several_tasks(manager, environ)
    if several is None:
        return
    from spawnlaunch.world import advised

    n = several.value
    lines = [f"one launcher per node: {advised.launcher_per_node(request, manager, environ, n)}"]
    if advised.can_be_tasks(request):
        lines += [f"one task per rank: {advised.task_per_rank(request, manager, environ, n)}"]
    raise UsageError(
        f"{manager.name} has started {n} tasks on a node already ({several.source}), so a launcher "
        f"in each of them cannot start workers too; type (all other options as they were) "
        + "; or ".join(lines)
    )


def several_tasks(manager: Manager, environ: Environ) -> Fact | None:
    """The tasks on a node, this one or another, where there are several."""
    here = manager.answer("local_world_size", environ)
    if here is not None and here.value > 1:
        return here
    local_rank = manager.answer("local_rank", environ)
    if local_rank is not None and local_rank.value > 0:
        return Fact(local_rank.value + 1, f"{local_rank.source} is {local_rank.value}")
    tasks, nodes = manager.answer("world_size", environ), manager.answer("nnodes", environ)
    if tasks is not None and nodes is not None and tasks.value > nodes.value > 0:
        source = f"{tasks.value} tasks ({tasks.source}) on {nodes.value} nodes ({nodes.source})"
        return Fact(-(-tasks.value // nodes.value), source)
    return None


def _mode_among_hosts(request: Request, manager: Manager, environ: Environ) -> Fact:
    """Inside a job that gives hosts only: one host is local mode, several need a launcher each."""
    nnodes = _nnodes_of(manager, environ)
    tasks = manager.answer("world_size", environ)
    if request.is_by_hand:
        return Fact(NODE, "--nnodes and --node-rank")
    if manager is slurm.SHELL:
        idle = not request.wants_launcher and tasks is not None and tasks.value > 1
        if idle or (nnodes is not None and nnodes.value > 1):
            raise UsageError(_srun_forgotten(request, environ, nnodes, tasks))
    elif nnodes is None:
        raise UsageError(
            f"{manager.why_silent('nnodes')}, so {manager.name} may have given this job several "
            "hosts; type --standalone if it is this one alone, else --nnodes N --node-rank N "
            "--master-addr HOST"
        )
    elif nnodes.value > 1:
        return Fact(NODE, f"{manager.name} lists {nnodes.value} hosts ({nnodes.source})")
    return Fact(LOCAL, f"{manager.name}, on one node")


def _srun_forgotten(
    request: Request, environ: Environ, nnodes: Fact | None, tasks: Fact | None
) -> str:
    from spawnlaunch.world import advised

    counts = ((nnodes, "nodes"), (tasks, "tasks"))
    has = [f"{fact.value} {what} ({fact.source})" for fact, what in counts if fact]
    if request.nproc is None and advised.can_be_tasks(request):
        line = advised.tasks_of_the_job(request, environ)
    else:
        n = -(-tasks.value // nnodes.value) if tasks and nnodes else 1
        line = advised.launcher_per_node(request, slurm.SHELL, environ, n)
    return (
        f"this is a shell of a Slurm job with {' and '.join(has)}, not a step of it: srun is "
        f"missing; type {line}; or, for this machine alone: {advised.alone(request)}"
    )


def task_place(request: Request, manager: Manager, environ: Environ) -> Facts:
    """One process per rank: everything is the manager's answer, or asked for by a flag."""
    given = {
        "rank": None,
        "world_size": request.world_size,
        "local_rank": None,
        "local_world_size": request.local_world_size,
    }
    facts = {question: _ask(question, given[question], manager, environ) for question in given}
    one_node = facts["world_size"].value == facts["local_world_size"].value
    for question, alone in (("node_rank", 0), ("nnodes", 1)):
        derived = Fact(alone, "all ranks are on this node") if one_node else None
        facts[question] = first([manager.answer(question, environ), derived]) or UNKNOWN
    _check_task(facts)
    return facts


def _ask(question: str, given: int | None, manager: Manager, environ: Environ) -> Fact:
    flag = f"--{question.replace('_', '-')}"
    by_flag = None if given is None else Fact(given, flag)
    by_manager = manager.answer(question, environ)
    _check_same(by_flag, by_manager)
    fact = first([by_flag, by_manager])
    if fact is None:
        has_flag = question in ("world_size", "local_world_size")
        what = f"type {flag} N" if has_flag else f"type export {question.upper()}=N for each"
        raise UsageError(f"{manager.why_silent(question)}; {what}")
    return fact


def _check_same(by_flag: Fact | None, derived: Fact | None) -> None:
    """A size that is known by two is a contradiction, or superfluous."""
    if by_flag and derived and by_flag.value != derived.value:
        raise UsageError(
            f"{by_flag.source} {by_flag.value}, but it is {derived.value} ({derived.source}); "
            f"leave {by_flag.source} out"
        )


def _check_task(facts: Facts) -> None:
    """What is counted from 0 lies below its number, and a part is not larger than the whole."""
    here = facts["local_world_size"]
    if here.value > MOST_LOCAL:
        raise UsageError(
            f"{here.source} says {here.value} ranks on this node, more than the {MOST_LOCAL} "
            "processes that a machine has by default; unset what an outer launcher left"
        )
    below = (("rank", "world_size"), ("local_rank", "local_world_size"), ("node_rank", "nnodes"))
    parts = (("local_world_size", "world_size"), ("nnodes", "world_size"))
    for (part, whole), most in [*((pair, -1) for pair in below), *((pair, 0) for pair in parts)]:
        one, other = facts[part], facts[whole]
        if None not in (one.value, other.value) and one.value > other.value + most:
            raise UsageError(
                f"{one.source} says {part.replace('_', ' ')} {one.value} and {other.source} says "
                f"{whole.replace('_', ' ')} {other.value}, which cannot both be; unset what an "
                "outer launcher left"
            )


def node_place(
    request: Request, manager: Manager | None, environ: Environ, hostname: str, capacity: Capacity
) -> Facts:
    """One launcher per node: its node rank and the number of nodes make its workers' ranks."""
    nnodes = _nnodes(request, manager, environ)
    node_rank = _node_rank(request, manager, environ, hostname, nnodes)
    nproc = _nproc(request, manager, environ, capacity)
    if node_rank.value >= nnodes.value:
        raise UsageError(
            f"node rank {node_rank.value} ({node_rank.source}) cannot be with {nnodes.value} nodes "
            f"({nnodes.source}); type --node-rank N, from 0 to {nnodes.value - 1}, on each"
        )
    if nnodes.value > 1 and isinstance(request.nproc, str):
        from spawnlaunch.world import even

        even.check(request, manager, environ, nproc, nnodes)
    facts = {
        "rank": Fact(node_rank.value * nproc.value, f"node rank x {nproc.source}"),
        "world_size": Fact(nnodes.value * nproc.value, f"nodes x {nproc.source}"),
        "local_rank": Fact(0, "first worker of this launcher"),
        "local_world_size": nproc,
        "node_rank": node_rank,
        "nnodes": nnodes,
    }
    _check_sizes(request, facts)
    return facts


def local_place(
    request: Request, manager: Manager | None, environ: Environ, capacity: Capacity
) -> Facts:
    """One machine."""
    nproc = _nproc(request, manager, environ, capacity)
    alone = "local mode"
    facts = {
        "rank": Fact(0, "first worker of this launcher"),
        "world_size": nproc,
        "local_rank": Fact(0, "first worker of this launcher"),
        "local_world_size": nproc,
        "node_rank": Fact(0, alone),
        "nnodes": Fact(1, alone),
    }
    _check_sizes(request, facts)
    return facts


def _check_sizes(request: Request, facts: Facts) -> None:
    """--world-size and --local-world-size, where --nproc has said both already."""
    given = {"world_size": request.world_size, "local_world_size": request.local_world_size}
    for question, value in given.items():
        if value is not None:
            _check_same(Fact(value, f"--{question.replace('_', '-')}"), facts[question])


def _nproc(request: Request, manager: Manager | None, environ: Environ, capacity: Capacity) -> Fact:
    """The number of workers that this launcher starts."""
    by_flag = None if request.nproc is None else Fact(request.nproc, "--nproc")
    by_manager = manager.answer("nproc", environ) if manager else None
    fact = first([by_flag, by_manager]) or Fact(1, "one worker: --nproc is not given")
    source = fact.source if isinstance(fact.value, int) else f"{fact.source} {fact.value}"
    return fact._replace(value=_number_of_workers(fact.value, request, capacity), source=source)


def _number_of_workers(nproc: int | str, request: Request, capacity: Capacity) -> int:
    """How many workers a value of --nproc means on this machine. Raises UsageError."""
    devices, cpus, devices_by = capacity
    if isinstance(nproc, int):
        if 0 < devices < nproc and not request.oversubscribe:
            by = f" ({devices_by})" if devices_by else ""
            raise UsageError(
                f"--nproc {nproc}, but {devices} visible devices{by}; type --nproc {devices}, or "
                f"--oversubscribe for several ranks on one device, or --nproc cpu"
            )
        return nproc
    if nproc == "cpu":
        return cpus
    if nproc == "gpu" and devices == 0:
        raise UsageError("--nproc gpu: no GPU is visible here; type --nproc N, or --nproc cpu")
    return devices or cpus


def _nnodes_of(manager: Manager, environ: Environ) -> Fact | None:
    hosts = manager.answer("hosts", environ)
    by_list = Fact(len(hosts.value), hosts.source) if hosts else None
    by_tasks = manager.answer("world_size", environ) if manager.kind == TASKS else None
    return first([manager.answer("nnodes", environ), by_list, by_tasks])


def _nnodes(request: Request, manager: Manager | None, environ: Environ) -> Fact:
    by_flag = None if request.nnodes is None else Fact(request.nnodes, "--nnodes")
    by_manager = _nnodes_of(manager, environ) if manager else None
    if by_flag and by_manager and by_flag.value != by_manager.value and not request.is_by_hand:
        raise UsageError(
            f"--nnodes {by_flag.value}, but {by_manager.source} says {by_manager.value} nodes; "
            "leave --nnodes out, or give --node-rank and --master-addr too"
        )
    fact = first([by_flag, by_manager])
    if fact is None:
        why = manager.why_silent("nnodes") if manager else "nothing says how many nodes there are"
        raise UsageError(f"{why}; type --nnodes N")
    if fact.value < 1:
        raise UsageError(f"{fact.source} says {fact.value} nodes; type --nnodes N")
    return fact


def _node_rank(
    request: Request, manager: Manager | None, environ: Environ, hostname: str, nnodes: Fact
) -> Fact:
    by_flag = None if request.node_rank is None else Fact(request.node_rank, "--node-rank")
    by_manager = _node_rank_of(manager, environ) if manager else None
    if by_manager is None and manager is not None:
        by_manager = _position(manager, environ, hostname)
    fact = first([by_flag, by_manager])
    if fact is None:
        raise UsageError(
            f"nothing here says which of the {nnodes.value} nodes this is; "
            f"type --node-rank N, from 0 to {nnodes.value - 1}, on each"
        )
    return fact


def _node_rank_of(manager: Manager, environ: Environ) -> Fact | None:
    """The number of this node: where there is one launcher on each, their ranks are as good."""
    answers = [manager.answer("node_rank", environ)]
    if manager.kind == TASKS:
        answers.append(manager.answer("rank", environ))
    return first(answers)


def is_overruled(request: Request, manager: Manager, environ: Environ) -> bool:
    """Whether --nnodes and --node-rank make another job than the manager's.

    Then nothing that it says is the same on all nodes: as where each node's launcher is a step of
    its own, or a list of hosts was walked by ssh.
    """
    if not request.is_by_hand:
        return False
    nnodes, node_rank = _nnodes_of(manager, environ), _node_rank_of(manager, environ)
    if manager.kind == HOSTS or nnodes is None or node_rank is None:
        return True
    return (nnodes.value, node_rank.value) != (request.nnodes, request.node_rank)


def _position(manager: Manager, environ: Environ, hostname: str) -> Fact | None:
    """This host's place in a list of hosts, with or without the domain."""
    hosts = manager.answer("hosts", environ)
    if hosts is None:
        return None
    short = [name.partition(".")[0] for name in hosts.value]
    mine = hostname.partition(".")[0]
    if short.count(mine) != 1:
        return None
    return Fact(short.index(mine), f"place of {hostname} in {hosts.source}")

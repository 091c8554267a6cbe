"""Rank, sizes and node rank, for each of the three modes: what the flags and the manager say.

The functions are pure: (request, manager, environment) to a table of facts, or a UsageError that
ends in the command to type.
"""

from collections.abc import Callable

from spawnlaunch.errors import UsageError
from spawnlaunch.request import Request, words_of
from spawnlaunch.world import slurm
from spawnlaunch.world.facts import UNKNOWN, Environ, Fact, first
from spawnlaunch.world.manager import HOSTS, TASKS, Manager

Facts = dict[str, Fact]
Count = Callable[[int | str], int]  # from the value of --nproc to a number of workers

TASK, NODE, LOCAL = "task", "node", "local"


def mode_of(request: Request, manager: Manager | None, environ: Environ) -> Fact:
    """Which of the three modes this launch is in, and why. Raises UsageError on a contradiction."""
    several = _tasks_on_this_node(manager, environ)
    if request.wants_launcher and several is not None and several.value > 1:
        raise UsageError(_both_ways(request, several))
    if request.is_standalone:
        return Fact(LOCAL, "--standalone" if request.standalone else "--nnodes 1")
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


def _tasks_on_this_node(manager: Manager | None, environ: Environ) -> Fact | None:
    if manager is None or manager.kind != TASKS:
        return None
    return manager.answer("local_world_size", environ)


def _both_ways(request: Request, several: Fact) -> str:
    worker = " ".join(words_of(request.program))
    n = several.value
    return (
        f"this step has {n} tasks on this node already ({several.source}), so a launcher in each "
        f"of them cannot start workers too; type one task per rank: "
        f"srun --ntasks-per-node={n} python -m spawnlaunch {worker}, or one launcher per node: "
        f"srun --ntasks-per-node=1 python -m spawnlaunch --nproc {n} {worker}"
    )


def _mode_among_hosts(request: Request, manager: Manager, environ: Environ) -> Fact:
    """Inside a job that gives hosts only: one host is local mode, several need a launcher each."""
    nnodes = _nnodes_of(manager, environ)
    tasks = manager.answer("world_size", environ)
    if request.is_by_hand:
        return Fact(NODE, "--nnodes and --node-rank")
    if manager is slurm.SHELL:
        idle = not request.wants_launcher and tasks is not None and tasks.value > 1
        if idle or (nnodes is not None and nnodes.value > 1):
            raise UsageError(_srun_forgotten(request, nnodes, tasks))
    elif nnodes is not None and nnodes.value > 1:
        return Fact(NODE, f"{manager.name} lists {nnodes.value} hosts ({nnodes.source})")
    return Fact(LOCAL, f"{manager.name}, on one node")


def _srun_forgotten(request: Request, nnodes: Fact | None, tasks: Fact | None) -> str:
    worker = " ".join(words_of(request.program))
    counts = ((nnodes, "nodes"), (tasks, "tasks"))
    has = [f"{fact.value} {what} ({fact.source})" for fact, what in counts if fact]
    if request.nproc is None:
        line = f"srun python -m spawnlaunch {worker}"
        alone = "--nproc N"
    else:
        line = f"srun --ntasks-per-node=1 python -m spawnlaunch --nproc {request.nproc} {worker}"
        alone = "--nnodes 1"
    return (
        f"this is a shell of a Slurm job with {' and '.join(has)}, not a step of it: srun is "
        f"missing; type {line} (to use this machine alone, add {alone})"
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
    fact = first([by_flag, manager.answer(question, environ)])
    if fact is None:
        raise UsageError(
            f"{manager.name} exports no {question.replace('_', ' ')} here; type {flag} N"
        )
    return fact


def _check_task(facts: Facts) -> None:
    for part, whole in (("rank", "world_size"), ("local_rank", "local_world_size")):
        if facts[part].value >= facts[whole].value:
            raise UsageError(
                f"{facts[part].source} says {part.replace('_', ' ')} {facts[part].value} and "
                f"{facts[whole].source} says {whole.replace('_', ' ')} {facts[whole].value}, which "
                f"cannot both be; unset what an outer launcher left, or type "
                f"--{whole.replace('_', '-')} N"
            )


def node_place(
    request: Request, manager: Manager | None, environ: Environ, hostname: str, count: Count
) -> Facts:
    """One launcher per node: its node rank and the number of nodes make its workers' ranks."""
    nnodes = _nnodes(request, manager, environ)
    node_rank = _node_rank(request, manager, environ, hostname, nnodes)
    nproc = _nproc(request, manager, environ, count)
    if node_rank.value >= nnodes.value:
        raise UsageError(
            f"node rank {node_rank.value} ({node_rank.source}) cannot be with {nnodes.value} nodes "
            f"({nnodes.source}); node ranks go from 0 to {nnodes.value - 1}"
        )
    return {
        "rank": Fact(node_rank.value * nproc.value, f"node rank x {nproc.source}"),
        "world_size": Fact(nnodes.value * nproc.value, f"nodes x {nproc.source}"),
        "local_rank": Fact(0, "first worker of this launcher"),
        "local_world_size": nproc,
        "node_rank": node_rank,
        "nnodes": nnodes,
    }


def local_place(request: Request, manager: Manager | None, environ: Environ, count: Count) -> Facts:
    """One machine."""
    nproc = _nproc(request, manager, environ, count)
    alone = "local mode"
    return {
        "rank": Fact(0, "first worker of this launcher"),
        "world_size": nproc,
        "local_rank": Fact(0, "first worker of this launcher"),
        "local_world_size": nproc,
        "node_rank": Fact(0, alone),
        "nnodes": Fact(1, alone),
    }


def _nproc(request: Request, manager: Manager | None, environ: Environ, count: Count) -> Fact:
    """The number of workers that this launcher starts."""
    by_flag = None if request.nproc is None else Fact(request.nproc, "--nproc")
    by_manager = manager.answer("nproc", environ) if manager else None
    fact = first([by_flag, by_manager]) or Fact(1, "one worker: --nproc is not given")
    source = fact.source if isinstance(fact.value, int) else f"{fact.source} {fact.value}"
    return fact._replace(value=count(fact.value), source=source)


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
        name = manager.name if manager else "the command line"
        raise UsageError(f"{name} does not say how many nodes there are; type --nnodes N")
    return fact


def _node_rank(
    request: Request, manager: Manager | None, environ: Environ, hostname: str, nnodes: Fact
) -> Fact:
    by_flag = None if request.node_rank is None else Fact(request.node_rank, "--node-rank")
    by_manager = None
    if manager is not None:
        answers = [manager.answer("node_rank", environ)]
        if manager.kind == TASKS:
            answers.append(manager.answer("rank", environ))
        by_manager = first([*answers, _position(manager, environ, hostname)])
    fact = first([by_flag, by_manager])
    if fact is None:
        raise UsageError(
            f"nothing here says which of the {nnodes.value} nodes this is; "
            f"type --node-rank N, from 0 to {nnodes.value - 1}, on each"
        )
    return fact


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

"""Variables of Slurm that something between srun and this process has taken away.

A wrapper script, `env -u`, sudo or a container may hand on a part of what srun gave. Where a parent
process still has all, what is missing is taken from it. Else the other variables say it: some have
an older name too, and a step's lists hold its numbers (srun(1), "Output environment variables").
What is missing still is named in an error, for nothing else makes the ranks fit together.

Imported only where some variables of Slurm are set and others are not.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial

from spawnlaunch import errors, flags
from spawnlaunch.world import identity, managers
from spawnlaunch.world.managers import slurm
from spawnlaunch.world.managers.slurm import lists

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TypeAlias

    # A variable, what reads it from others, and which these are.
    Row: TypeAlias = tuple[str, Callable[[identity.Environ], str | int | None], str]

# What each process of a job has by an older name too.
OLD_NAMES = {slurm.JOB_ID: "SLURM_JOBID", slurm.STEP_ID: "SLURM_STEPID"}
# And its batch script or shell: in a step these may be said of the step.
OLD_NAMES_OF_A_SHELL = {
    slurm.JOB_NODELIST: "SLURM_NODELIST",
    slurm.JOB_NODES: "SLURM_NNODES",
    slurm.JOB_TASKS: "SLURM_NPROCS",
}
NEEDED = (*slurm.STEP.needs, slurm.STEP_NODES, slurm.NODEID)
SIGNS_OF_A_SHELL = {
    *(slurm.JOB_NODELIST, slurm.JOB_NODES, slurm.JOB_CPUS_PER_NODE),
    *("SLURM_NODELIST", slurm.PROCID),
}
GROUP = re.compile(r"SLURM_JOB_(?:ID|NODELIST)_(?:HET|PACK)_GROUP_(\d{1,3})")


def restored(
    request: flags.Request, environ: identity.Environ
) -> tuple[identity.Environ, list[str]]:
    """The environment with what is missing, and a line about that.

    Raises UsageError where a variable is missing that nothing tells, unless the flags say who this
    is, or an inner manager.
    """
    found = dict(environ)
    sources = [*_take_old_names(found, OLD_NAMES)]
    is_step = slurm.is_step(found)
    if _has_inner_manager(found, is_step=is_step):
        return environ, []
    if is_step:
        sources += _take_from_parent(found)
        sources += _take(found, LISTS)
        missing = [*_missing_in_step(request, found)]
    elif SIGNS_OF_A_SHELL.isdisjoint(found):
        return environ, []
    else:
        sources += _take_old_names(found, OLD_NAMES_OF_A_SHELL)
        sources += _take(found, ((slurm.JOB_NODES, _nodes_of_job, slurm.JOB_NODELIST),))
        missing = [name for name in slurm.SHELL.needs if not found.get(name)]
    missing += _missing_groups(found)
    if missing and not (request.standalone or request.is_by_hand):
        _refuse(request, missing, "srun" if is_step else "Slurm")
    return found, _in_words(sources)


def _in_words(sources: Iterable[tuple[str, str]]) -> list[str]:
    """The line about variables, each with what it was taken from."""
    names: dict[str, list[str]] = {}
    for name, source in sources:
        names.setdefault(source, []).append(name)
    said = "; ".join(f"taken from {source}: {' '.join(of)}" for source, of in names.items())
    return [f"some of Slurm's variables are missing here; {said}"] if said else []


def _has_inner_manager(environ: identity.Environ, *, is_step: bool) -> bool:
    """Whether one that counts before Slurm has started this process."""
    rows = [row[1:] for row in managers.ORDER]
    until = rows.index(("slurm", "STEP" if is_step else "SHELL"))
    inner = (managers.load(*row) for row in rows[:until] if row != ("slurm", "STEP"))
    return any(manager.is_present(environ) for manager in inner)


def _take_old_names(found: dict[str, str], names: dict[str, str]) -> Iterator[tuple[str, str]]:
    for name, old in names.items():
        if found.get(old) and not found.get(name):
            found[name] = found[old]
            yield name, old


def _take_from_parent(found: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Whatever the task was given."""
    given = slurm.STEP.given() if slurm.STEP.given else None
    for name, value in (given or {}).items():
        if name.startswith("SLURM") and name not in found:
            found[name] = value
            yield name, "a parent process"


def _take(found: dict[str, str], rows: Iterable[Row]) -> Iterator[tuple[str, str]]:
    """What a list has as well; a later row may need what an earlier one has found."""
    for name, read, source in rows:
        value = None if found.get(name) else read(found)
        if value is not None:
            found[name] = str(value)
            yield name, source


def _tasks(environ: identity.Environ) -> int | None:
    counts = slurm.read_runs(slurm.STEP_TASKS_PER_NODE, environ)
    return sum(tasks * nodes for tasks, nodes in counts) or None


def _nodes(environ: identity.Environ) -> int | None:
    return sum(nodes for _, nodes in slurm.read_runs(slurm.STEP_TASKS_PER_NODE, environ)) or None


def _nodelist(environ: identity.Environ) -> str | None:
    """The job's, where the step has as many nodes."""
    nodes = identity.number(slurm.STEP_NODES, environ)
    if nodes is None or not environ.get(slurm.JOB_NODELIST) or environ.get(slurm.HET_SIZE):
        return None
    return environ[slurm.JOB_NODELIST] if _nodes_of_job(environ) == nodes.value else None


def _nodes_of_job(environ: identity.Environ) -> int | None:
    return _count(slurm.JOB_NODELIST, environ)


def _count(name: str, environ: identity.Environ) -> int | None:
    """The hosts in a list; what cannot be read is refused where it is needed."""
    with suppress(lists.ListError):
        return lists.count(environ.get(name, ""))
    return None


def _rank(environ: identity.Environ) -> str | None:
    """The ranks of a node's tasks are listed in the order of their local ranks."""
    ranks = environ.get(slurm.GLOBAL_IDS, "").split(",")
    local_rank = identity.number(slurm.LOCALID, environ)
    return ranks[local_rank.value] if local_rank and local_rank.value < len(ranks) else None


def _local_rank(environ: identity.Environ) -> int | None:
    ranks, rank = environ.get(slurm.GLOBAL_IDS, "").split(","), environ.get(slurm.PROCID)
    return ranks.index(rank) if rank in ranks else None


def _node_rank(environ: identity.Environ) -> int | None:
    nodes, name = _nodes_in_order(environ), environ.get(slurm.NODENAME)
    return nodes.index(name) if name in nodes else None


def _node_name(environ: identity.Environ) -> str | None:
    nodes, node = _nodes_in_order(environ), identity.number(slurm.NODEID, environ)
    return nodes[node.value] if node and node.value < len(nodes) else None


def _nodes_in_order(environ: identity.Environ) -> list[str]:
    """The step's nodes by SLURM_NODEID: those of a heterogeneous step one component after another.

    None where the list is not there.
    """
    if (_count(slurm.STEP_NODELIST, environ) or 0) > lists.MAX_HOSTS:
        return []
    nodes = slurm.hosts_of(slurm.STEP_NODELIST, environ)
    groups = slurm.of_components(slurm.JOB_NODELIST, environ).values()
    of_groups = [host for name in groups for host in slurm.hosts_of(name, environ) if host in nodes]
    return of_groups or nodes


def _size(environ: identity.Environ) -> int | None:
    """The number of components, by the last that any variable is about."""
    numbers = [int(match[1]) for name in environ if (match := GROUP.fullmatch(name))]
    return 1 + max(numbers) if numbers else None


LISTS = (
    (slurm.HET_SIZE, _size, "the numbers of the groups"),
    (slurm.STEP_TASKS, _tasks, slurm.STEP_TASKS_PER_NODE),
    (slurm.STEP_NODES, _nodes, slurm.STEP_TASKS_PER_NODE),
    (slurm.STEP_NODELIST, _nodelist, slurm.JOB_NODELIST),
    (slurm.STEP_NODES, partial(_count, slurm.STEP_NODELIST), slurm.STEP_NODELIST),
    (slurm.PROCID, _rank, f"{slurm.GLOBAL_IDS} and {slurm.LOCALID}"),
    (slurm.LOCALID, _local_rank, f"{slurm.GLOBAL_IDS} and {slurm.PROCID}"),
    (slurm.NODEID, _node_rank, f"{slurm.NODENAME} and {slurm.STEP_NODELIST}"),
    (slurm.NODENAME, _node_name, f"{slurm.NODEID} and {slurm.STEP_NODELIST}"),
)


def _missing_in_step(request: flags.Request, environ: identity.Environ) -> Iterator[str]:
    """A flag says what some of them say."""
    finds_host = request.master_addr is None and request.rdzv_endpoint is None
    counts = request.local_world_size is None and not environ.get(slurm.GLOBAL_IDS)
    needed = [*NEEDED]
    if finds_host or environ.get(slurm.HET_SIZE):
        needed.append(slurm.STEP_NODELIST)
    if counts or (finds_host and environ.get(slurm.HOSTFILE)):
        needed.append(slurm.STEP_TASKS_PER_NODE)
    yield from (name for name in needed if not environ.get(name))


def _missing_groups(environ: identity.Environ) -> Iterator[str]:
    """What is said of some components of a heterogeneous job has to be said of all."""
    size = identity.number(slurm.HET_SIZE, environ)
    numbers = range(min(size.value, slurm.MOST_GROUPS) if size else 0)
    word = "PACK" if "SLURM_JOB_ID_PACK_" in " ".join(environ) else "HET"
    for name in (slurm.JOB_NODELIST, slurm.JOB_ID, slurm.JOB_NODES):
        groups = slurm.of_components(name, environ)
        if groups or name == slurm.JOB_NODELIST:
            yield from (f"{name}_{word}_GROUP_{i}" for i in numbers if i not in groups)


def _refuse(request: flags.Request, missing: list[str], starter: str) -> None:
    from spawnlaunch.world import advice

    names = " and ".join(missing)
    without, env = (" ".join(f"{flag} {name}" for name in missing) for flag in ("-u", "--env"))
    raise errors.UsageError(
        f"{names} {'is' if len(missing) == 1 else 'are'} missing here, which {starter} sets beside "
        "the other variables of Slurm that are here: a wrapper script, env, sudo or a container "
        f"has taken it away; let it pass: env without -i and without {without}, "
        f"sudo --preserve-env={','.join(missing)}, apptainer without --cleanenv, "
        f"docker run {env}; or, for this machine alone, type {advice.alone(request)}"
    )

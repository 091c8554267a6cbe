"""The srun lines that errors tell the user to type.

srun takes what its job was asked for as its defaults, and ignores an --ntasks-per-node that does
not fit the job's --ntasks: so a line for one launcher per node says nodes, tasks and tasks per
node. A step of a heterogeneous job has options for each component, with colons between them
(srun(1), "HETEROGENEOUS JOB SUPPORT").
"""

from __future__ import annotations

from spawnlaunch.reading import is_number
from spawnlaunch.records import NamedTuple
from spawnlaunch.world import lists, slurm
from spawnlaunch.world.facts import Environ

CPUS_HERE = "SLURM_CPUS_ON_NODE"
CPUS_EVERYWHERE = "SLURM_JOB_CPUS_PER_NODE"
GPUS_HERE = "SLURM_GPUS_ON_NODE"
# With one of these a task may not ask for all the CPUs that Slurm counts.
CPU_HINTS = ("SLURM_HINT", "SLURM_THREADS_PER_CORE")
GPUS_IN_ALL = "SLURM_GPUS"  # of --gpus: one node may have more of them than another


class Part(NamedTuple):
    """A component of the job, as far as it is to run the command."""

    group: str  # the option that names it, and a space, where not all take part
    nodes: int
    tasks: int


def as_the_job(environ: Environ, command: str) -> str:
    """The line for as many tasks as the job was asked for, in all its components."""
    last = len(slurm.of_components(slurm.JOB_ID, environ)) - 1
    groups = [f"--het-group=0-{last}"] if slurm.is_heterogeneous(environ) else []
    return " ".join([*_srun(environ), *groups, command])


def per_rank(environ: Environ, command: str) -> str:
    """The line for as many tasks as this step has."""
    parts = _parts(environ)
    sizes = [f"{part.group}--nodes={part.nodes} --ntasks={part.tasks}" for part in parts]
    return _line(environ, sizes, command)


def per_node(environ: Environ, command: str) -> str:
    """The line for one launcher on each node, with all CPUs and devices that it has here."""
    parts = _parts(environ)
    sizes = [
        f"{part.group}--nodes={part.nodes} --ntasks={part.nodes} --ntasks-per-node=1"
        for part in parts
    ]
    if len(parts) == 1:
        sizes = [" ".join([*sizes, *_all_of_a_node(environ)])]
    return _line(environ, sizes or ["--ntasks-per-node=1"], command)


def _line(environ: Environ, sizes: list[str], command: str) -> str:
    steps = " : ".join(f"{size} {command}" for size in sizes)
    return " ".join([*_srun(environ), steps or command])


def _srun(environ: Environ) -> list[str]:
    """In the shell of a step, which holds all that the job has, another step has to share it."""
    return ["srun", "--overlap"] if slurm.PTY_PORT in environ else ["srun"]


def _all_of_a_node(environ: Environ) -> list[str]:
    words = []
    cpus, gpus = environ.get(CPUS_HERE, ""), environ.get(GPUS_HERE, "")
    is_known = "," not in environ.get(CPUS_EVERYWHERE, ",") and not any(map(environ.get, CPU_HINTS))
    if is_known and is_number(cpus):
        words.append(f"--cpus-per-task={cpus}")
    if is_number(gpus) and int(gpus) and not environ.get(GPUS_IN_ALL):
        words.append(f"--gpus-per-node={gpus}")
    return words


def _parts(environ: Environ) -> list[Part]:
    """In the order of the components; none where Slurm does not say."""
    if slurm.is_heterogeneous(environ):
        try:
            return _of_step(environ) if slurm.is_step(environ) else _of_job(environ)
        except (KeyError, ValueError):  # the error that is on its way matters more
            return []
    nodes, tasks = slurm.shell_nodes(environ), slurm.shell_tasks(environ)
    return [Part("", nodes.value, tasks.value if tasks else nodes.value)] if nodes else []


def _of_job(environ: Environ) -> list[Part]:
    nodes = slurm.of_components(slurm.JOB_NODES, environ)
    tasks = slurm.of_components(slurm.JOB_TASKS, environ)
    return [
        Part("", int(environ[name]), int(environ[tasks.get(i, name)])) for i, name in nodes.items()
    ]


def _of_step(environ: Environ) -> list[Part]:
    """The tasks of a step's nodes, which are listed without regard to the components."""
    names = lists.expand(environ[slurm.STEP_NODELIST])
    counts = environ[slurm.STEP_TASKS_PER_NODE]
    tasks = {name: lists.tasks_on(counts, i) for i, name in enumerate(names)}
    groups = slurm.of_components(slurm.JOB_NODELIST, environ)
    found = {}
    for group, name in groups.items():
        hosts = [host for host in lists.expand(environ[name]) if host in tasks]
        if hosts:
            found[group] = Part("", len(hosts), sum(tasks[host] for host in hosts))
    if len(found) == len(groups):
        return list(found.values())
    return [part._replace(group=f"--het-group={group} ") for group, part in found.items()]

"""The line of srun by which a command is started in a job, as the job or as this step has it.

srun takes what its job was asked for as its defaults, and ignores an --ntasks-per-node that does
not fit the job's --ntasks: so a line for one launcher per node says nodes, tasks and tasks per
node. A step of a heterogeneous job has options for each component, with colons between them
(srun(1), "HETEROGENEOUS JOB SUPPORT"). Only errors need this, so only they import it.
"""

from __future__ import annotations

from spawnlaunch import reading, records
from spawnlaunch.world import identity
from spawnlaunch.world.managers import slurm
from spawnlaunch.world.managers.slurm import lists


def requeue(most: int) -> str:
    """What a batch script says behind srun to be started anew, up to `most` times.

    Not after status 2: what was typed wrong stays wrong. SLURM_RESTART_COUNT is not set in the
    first attempt (sbatch(1)).
    """
    return (
        "status=$?; [ $status -ne 0 ] && [ $status -ne 2 ] && "
        f'[ "${{SLURM_RESTART_COUNT:-0}}" -lt {most} ] && scontrol requeue $SLURM_JOB_ID; '
        "exit $status"
    )


class Part(records.NamedTuple):
    """A component of the job, as far as it is to run the command."""

    group: str  # the option that names it, and a space, where not all take part
    nodes: int
    tasks: int


def as_the_job(environ: identity.Environ, command: str) -> str:
    """The line for as many tasks as the job was asked for, in all its components."""
    last = len(slurm.of_components(slurm.JOB_ID, environ)) - 1
    groups = [f"--het-group=0-{last}"] if slurm.is_heterogeneous(environ) else []
    return " ".join([*_srun(environ), *groups, command])


def per_rank(environ: identity.Environ, command: str) -> str:
    """The line for as many tasks as this step has."""
    sizes = [f"{p.group}--nodes={p.nodes} --ntasks={p.tasks}" for p in _parts(environ)]
    return _line(environ, sizes, command)


def per_node(environ: identity.Environ, command: str) -> str:
    """The line for one launcher on each node, with all CPUs and devices that it has here."""
    sizes = [
        f"{part.group}--nodes={part.nodes} --ntasks={part.nodes} --ntasks-per-node=1"
        for part in _parts(environ)
    ]
    if len(sizes) == 1:
        sizes = [" ".join([*sizes, *_all_of_a_node(environ)])]
    return _line(environ, sizes or ["--ntasks-per-node=1"], command)


def _line(environ: identity.Environ, sizes: list[str], command: str) -> str:
    steps = " : ".join(f"{size} {command}" for size in sizes)
    return " ".join([*_srun(environ), steps or command])


def _srun(environ: identity.Environ) -> list[str]:
    """In the shell of a step, which holds all that the job has, another step has to share it."""
    return ["srun", "--overlap"] if slurm.PTY_PORT in environ else ["srun"]


def _all_of_a_node(environ: identity.Environ) -> list[str]:
    words = []
    cpus, gpus = environ.get("SLURM_CPUS_ON_NODE", ""), environ.get("SLURM_GPUS_ON_NODE", "")
    # With one of these a task may not ask for all the CPUs that Slurm counts.
    is_hinted = environ.get("SLURM_HINT") or environ.get("SLURM_THREADS_PER_CORE")
    is_everywhere = "," not in environ.get(slurm.JOB_CPUS_PER_NODE, ",")
    if is_everywhere and not is_hinted and reading.is_number(cpus):
        words.append(f"--cpus-per-task={cpus}")
    # Of --gpus, in all, one node may have more than another.
    if reading.is_number(gpus) and int(gpus) and not environ.get("SLURM_GPUS"):
        words.append(f"--gpus-per-node={gpus}")
    return words


def _parts(environ: identity.Environ) -> list[Part]:
    """In the order of the components; none where Slurm does not say."""
    if slurm.is_heterogeneous(environ):
        try:
            return _of_step(environ) if slurm.is_step(environ) else _of_job(environ)
        except (KeyError, ValueError):  # the error that is on its way matters more
            return []
    nodes, tasks = slurm.shell_nodes(environ), slurm.shell_tasks(environ)
    return [Part("", nodes.value, tasks.value if tasks else nodes.value)] if nodes else []


def _of_job(environ: identity.Environ) -> list[Part]:
    nodes = slurm.of_components(slurm.JOB_NODES, environ)
    tasks = slurm.of_components(slurm.JOB_TASKS, environ)
    return [
        Part("", int(environ[name]), int(environ[tasks.get(i, name)])) for i, name in nodes.items()
    ]


def _of_step(environ: identity.Environ) -> list[Part]:
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

"""Slurm: a step with one process per rank (srun), or a job's shell (sbatch, salloc, srun --pty).

A step's task has, here the third of `srun -N2 -n3`:

    SLURM_STEP_ID=0  SLURM_STEP_NUM_TASKS=3  SLURM_STEP_NODELIST=node[0-1]
    SLURM_STEP_TASKS_PER_NODE=2,1  SLURM_PROCID=2  SLURM_LOCALID=0  SLURM_NODEID=1

The STEP variables come before those of the job: a step may have fewer tasks and nodes than its job,
and inside `salloc -n4` the tasks of `srun --preserve-env -n1` see SLURM_NTASKS=4. A batch script
has SLURM_PROCID=0, and is nobody's rank: only the STEP variables prove a step. And not even they,
where a task has submitted the script by sbatch, which hands on its whole environment: there the
name of the slurmstepd above us tells.

A heterogeneous step has one node list for all its components, sorted by name, and the tasks per
node follow it; but SLURM_NODEID counts in the order of the components. SLURM_GTIDS is right always.
Source: srun(1), "Output environment variables"; Slurm's src/common/env.c.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from spawnlaunch.errors import UsageError
from spawnlaunch.world import hostlist, slurm_hostfile, tasks_per_node
from spawnlaunch.world.ancestors import nearest
from spawnlaunch.world.facts import MAX_PORT, Environ, Fact, is_number, number, text
from spawnlaunch.world.manager import HOSTS, TASKS, Manager

JOB_ID = "SLURM_JOB_ID"
HET_JOB_ID = "SLURM_HET_JOB_ID"  # the first component's job, the same in all of them
HET_SIZE = "SLURM_HET_SIZE"  # number of components
STEP_ID = "SLURM_STEP_ID"
PROCID = "SLURM_PROCID"
LOCALID = "SLURM_LOCALID"
NODEID = "SLURM_NODEID"
STEP_TASKS = "SLURM_STEP_NUM_TASKS"
STEP_NODES = "SLURM_STEP_NUM_NODES"
STEP_NODELIST = "SLURM_STEP_NODELIST"
STEP_TASKS_PER_NODE = "SLURM_STEP_TASKS_PER_NODE"
GLOBAL_IDS = "SLURM_GTIDS"  # the ranks of the tasks on this node
JOB_TASKS = "SLURM_NTASKS"
JOB_NODES = "SLURM_JOB_NUM_NODES"
JOB_NODELIST = "SLURM_JOB_NODELIST"
NODENAME = "SLURMD_NODENAME"  # this node's name, as the lists have it
DISTRIBUTION = "SLURM_DISTRIBUTION"
HOSTFILE = "SLURM_HOSTFILE"  # read by srun: a host per task, in the order of ranks
RESERVED_PORTS = "SLURM_STEP_RESV_PORTS"  # where MpiParams=ports is configured
PTY_PORT = "SLURM_PTY_PORT"
MOST_GROUPS = 128  # as slurm.h's MAX_HET_JOB_COMPS: a larger size is a mistake
DAEMON = "slurmstepd"
NO_STEPS = ("batch", "extern", "interactive")  # as slurmstepd calls what has no ranks
INTERACTIVE_STEP = "4294967290"  # 0xfffffffa, SLURM_INTERACTIVE_STEP in slurm.h

T = TypeVar("T")


def is_shell(environ: Environ) -> bool:
    """Whether this is no rank of the step, but a shell: of a person, or a batch script.

    A person's is `srun --pty`, or salloc's interactive step.
    """
    of_a_person = PTY_PORT in environ and environ.get(STEP_TASKS) == "1"
    return of_a_person or _has_foreign_step(environ)


def _has_foreign_step(environ: Environ) -> bool:
    """Whether the STEP variables are not those of a step with ranks that we are in."""
    return environ.get(STEP_ID) == INTERACTIVE_STEP or _is_elsewhere(environ, started_by())


def started_by() -> str:
    """`JOB.STEP` of the slurmstepd above us, from its title `slurmstepd: [7.batch]`; else ""."""
    pid = nearest((DAEMON,))
    if pid is None:
        return ""
    try:
        with open(f"/proc/{pid}/cmdline", errors="replace") as file:
            return file.read().partition("[")[2].partition("]")[0]
    except OSError:
        return ""


def _is_elsewhere(environ: Environ, job_and_step: str) -> bool:
    """Whether the task started by `job_and_step` has inherited another one's STEP variables."""
    job, _, step = job_and_step.partition(".")
    if step in NO_STEPS:
        return True
    if not step or environ.get(HET_SIZE):  # whose tasks all have the first component's job
        return False
    return (job, step) != (environ.get(JOB_ID), environ.get(STEP_ID))


def tasks_listed(environ: Environ) -> Fact | None:
    """The number of ranks that are listed as this node's."""
    ids = environ.get(GLOBAL_IDS, "")
    return Fact(len(ids.split(",")), f"number of {GLOBAL_IDS}={ids}") if ids else None


def tasks_of_this_node(environ: Environ) -> Fact | None:
    """This node's own entry of the tasks per node, which follow the node list."""
    counts, node = environ.get(STEP_TASKS_PER_NODE), _place_in_nodelist(environ)
    if not counts or node is None:
        return None
    tasks = _readable(tasks_per_node.tasks_on, STEP_TASKS_PER_NODE, environ, node.value)
    return Fact(tasks, f"{STEP_TASKS_PER_NODE}={counts}, entry {node.value} ({node.source})")


def _place_in_nodelist(environ: Environ) -> Fact | None:
    """SLURM_NODEID; but the list of a heterogeneous step is sorted, and its node ids are not."""
    if not _groups(environ):
        return number(NODEID)(environ)
    nodes = _readable(hostlist.expand, STEP_NODELIST, environ)
    name = environ.get(NODENAME)
    return Fact(nodes.index(name), f"place of {NODENAME}={name}") if name in nodes else None


def rank_0_host(environ: Environ) -> Fact | None:
    """The host of task 0: that of node 0, but under an arbitrary distribution."""
    if environ.get(DISTRIBUTION, "").startswith("arbitrary"):
        why = f"first host of {HOSTFILE} (arbitrary distribution)"
        name = _first_in_hostfile(environ)
        return Fact(name, why) if name else None
    return node_0_host(environ)


def _first_in_hostfile(environ: Environ) -> str | None:
    """The file's first host, unless the file is not what srun went by: `srun -w` overrules it."""
    path, rank = environ.get(HOSTFILE), number(PROCID)(environ)
    if not path or rank is None:
        return None
    names = slurm_hostfile.hosts_of(path, rank.value + 1)
    mine = environ.get(NODENAME)
    if len(names) <= rank.value or (mine and names[rank.value] != mine):
        return None
    return names[0]


def node_0_host(environ: Environ) -> Fact | None:
    """The host of SLURM_NODEID 0: the first of the step's list.

    In a heterogeneous step it is the first of the first component that takes part.
    """
    nodes = environ.get(STEP_NODELIST)
    if not nodes:
        return None
    in_step = set(_readable(hostlist.expand, STEP_NODELIST, environ)) if _groups(environ) else set()
    for name in _groups(environ):
        for host in _readable(hostlist.expand, name, environ):
            if host in in_step:
                return Fact(
                    host, f"first host of {name}={environ[name]} in {STEP_NODELIST}={nodes}"
                )
    host = _readable(hostlist.first_host, STEP_NODELIST, environ)
    return Fact(host, f"first host of {STEP_NODELIST}={nodes}")


def _groups(environ: Environ) -> list[str]:
    """The variables with the node lists of a heterogeneous job's components, in their order.

    srun of Slurm 22.05 writes PACK where the manual page says HET.
    """
    size = number(HET_SIZE)(environ)
    names = [
        f"{JOB_NODELIST}_{word}_GROUP_{i}"
        for i in range(min(size.value, MOST_GROUPS) if size else 0)
        for word in ("HET", "PACK")
    ]
    return [name for name in names if environ.get(name)]


def job_and_step(environ: Environ) -> Fact | None:
    """`JOB.STEP`, the same in every task of a step, also across heterogeneous components."""
    for name in (HET_JOB_ID, f"{JOB_ID}_HET_GROUP_0", f"{JOB_ID}_PACK_GROUP_0", JOB_ID):
        if environ.get(name):
            return Fact(f"{environ[name]}.{environ[STEP_ID]}", f"{name}.{STEP_ID}")
    return None


def reserved_port(environ: Environ) -> Fact | None:
    """The first port that Slurm has reserved for the step: `12000-12003` or `12000,12007`."""
    port = environ.get(RESERVED_PORTS, "").partition(",")[0].partition("-")[0]
    if not port:
        return None
    if not is_number(port) or not 0 < int(port) <= MAX_PORT:
        raise UsageError(f"{RESERVED_PORTS}={port!r} is not a port; type --master-port N")
    return Fact(int(port), RESERVED_PORTS)


def shell_nodes(environ: Environ) -> Fact | None:
    """The nodes that a shell could use: the job's; of `srun --pty` those of its step."""
    if STEP_ID in environ and not _has_foreign_step(environ):
        return number(STEP_NODES)(environ)
    return number(JOB_NODES)(environ)


def listed_nodes(environ: Environ) -> Fact:
    """The length of the job's list of nodes."""
    return Fact(_readable(hostlist.count, JOB_NODELIST, environ), f"length of {JOB_NODELIST}")


def is_outside(environ: Environ, hostname: str) -> bool:
    """Whether a shell of the job is not on one of its nodes, as that of salloc on a login node."""
    if environ.get(NODENAME):
        return False
    nodes = _readable(hostlist.expand, JOB_NODELIST, environ)
    return hostname.partition(".")[0] not in (node.partition(".")[0] for node in nodes)


def shell_tasks(environ: Environ) -> Fact | None:
    """The tasks that the job or, of `srun --pty`, the step was asked for."""
    if STEP_ID in environ and not _has_foreign_step(environ):
        return number(STEP_TASKS)(environ)
    return number(JOB_TASKS)(environ)


def _readable(read: Callable[..., T], name: str, environ: Environ, *arguments: Any) -> T:
    """Call a reader of Slurm's notations, whose complaint is the user's to see."""
    try:
        return read(environ.get(name, ""), *arguments)
    except ValueError as error:
        why = str(error).replace("\nhint: ", "; ")
        raise UsageError(f"{name} cannot be read: {why}; type unset {name}, or mend it") from None


STEP = Manager(
    name="Slurm",
    kind=TASKS,
    needs=(JOB_ID, STEP_ID, STEP_TASKS, PROCID, LOCALID),
    unless=is_shell,
    table={
        "rank": (number(PROCID),),
        "world_size": (number(STEP_TASKS), number(JOB_TASKS)),
        "local_rank": (number(LOCALID),),
        "local_world_size": (tasks_listed, tasks_of_this_node),
        "node_rank": (number(NODEID),),
        "nnodes": (number(STEP_NODES), number(JOB_NODES)),
        "rank_0_host": (rank_0_host,),
        "node_0_host": (node_0_host,),
        "job": (job_and_step,),
        "master_port": (reserved_port,),
    },
    silent={
        "rank_0_host": f"with {DISTRIBUTION}=arbitrary rank 0 may be on any host of the step, "
        f"and no {HOSTFILE} that fits it can be read here"
    },
    starter="srun --ntasks-per-node={n}",
)

SHELL = Manager(
    name="a shell of a Slurm job",
    kind=HOSTS,
    needs=(JOB_ID, JOB_NODELIST),
    table={
        "nnodes": (shell_nodes, listed_nodes),
        "world_size": (shell_tasks,),
        "job": (text(JOB_ID),),
    },
)

"""Slurm: a step with one process per rank (srun), or a job's shell (sbatch, salloc, srun --pty).

A step's task has, here the third of `srun -N2 -n3`:

    SLURM_STEP_ID=0  SLURM_STEP_NUM_TASKS=3  SLURM_STEP_NODELIST=node[0-1]
    SLURM_STEP_TASKS_PER_NODE=2,1  SLURM_PROCID=2  SLURM_LOCALID=0  SLURM_NODEID=1

The STEP variables come before those of the job: a step may have fewer tasks and nodes than its job,
and inside `salloc -n4` the tasks of `srun --preserve-env -n1` see SLURM_NTASKS=4. A batch script
has SLURM_PROCID=0, and is nobody's rank: only the STEP variables prove a step.
Source: srun(1), "Output environment variables"; Slurm's src/common/env.c.
"""

from spawnlaunch.errors import UsageError
from spawnlaunch.world import hostlist, tasks_per_node
from spawnlaunch.world.facts import Environ, Fact, number, text
from spawnlaunch.world.hostfile import unique_hosts
from spawnlaunch.world.manager import HOSTS, TASKS, Manager

JOB_ID = "SLURM_JOB_ID"
HET_JOB_ID = "SLURM_HET_JOB_ID"  # the first component's job, the same in all of them
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
DISTRIBUTION = "SLURM_DISTRIBUTION"
HOSTFILE = "SLURM_HOSTFILE"  # read by srun: a host per task, in the order of ranks
RESERVED_PORTS = "SLURM_STEP_RESV_PORTS"  # where MpiParams=ports is configured
PTY_PORT = "SLURM_PTY_PORT"
INTERACTIVE_STEP = "4294967290"  # 0xfffffffa, SLURM_INTERACTIVE_STEP in slurm.h


def is_shell(environ: Environ) -> bool:
    """Whether the step is a person's shell: `srun --pty`, or salloc's interactive step."""
    pty = PTY_PORT in environ and environ.get(STEP_TASKS) == "1"
    return pty or environ.get(STEP_ID) == INTERACTIVE_STEP


def local_world_size(environ: Environ) -> Fact | None:
    """This node's own entry of the tasks per node."""
    counts, node = environ.get(STEP_TASKS_PER_NODE), number(NODEID)(environ)
    if not counts or node is None:
        return None
    try:
        tasks = tasks_per_node.tasks_on(counts, node.value)
    except ValueError as error:
        raise UsageError(_one_line(error)) from None
    return Fact(tasks, f"{STEP_TASKS_PER_NODE}={counts}, entry {node.value} ({NODEID})")


def tasks_listed(environ: Environ) -> Fact | None:
    """The number of ranks listed as this node's."""
    ids = environ.get(GLOBAL_IDS, "")
    return Fact(len(ids.split(",")), f"number of {GLOBAL_IDS}") if ids else None


def rank_0_host(environ: Environ) -> Fact | None:
    """The host of task 0: the step's first, but under an arbitrary distribution."""
    if environ.get(DISTRIBUTION, "").startswith("arbitrary"):
        names = unique_hosts(environ.get(HOSTFILE, ""))
        why = f"first line of {HOSTFILE} (arbitrary distribution)"
        return Fact(names[0], why) if names else None
    return node_0_host(environ)


def node_0_host(environ: Environ) -> Fact | None:
    """The host of SLURM_NODEID 0: the first of the step's list."""
    nodes = environ.get(STEP_NODELIST)
    if not nodes:
        return None
    try:
        return Fact(hostlist.first_host(nodes), f"first host of {STEP_NODELIST}={nodes}")
    except ValueError as error:
        raise UsageError(_one_line(error)) from None


def job_and_step(environ: Environ) -> Fact | None:
    """`JOB.STEP`, the same in every task of a step, also across heterogeneous components."""
    name = HET_JOB_ID if environ.get(HET_JOB_ID) else JOB_ID
    if not environ.get(name):
        return None
    return Fact(f"{environ[name]}.{environ[STEP_ID]}", f"{name}.{STEP_ID}")


def reserved_port(environ: Environ) -> Fact | None:
    """The first port that Slurm has reserved for the step: `12000-12003` or `12000,12007`."""
    port = environ.get(RESERVED_PORTS, "").partition(",")[0].partition("-")[0]
    return Fact(int(port), RESERVED_PORTS) if port.isdigit() else None


def _one_line(error: ValueError) -> str:
    return str(error).replace("\nhint: ", "; ")


STEP = Manager(
    name="Slurm",
    kind=TASKS,
    needs=(JOB_ID, STEP_ID, STEP_TASKS, PROCID, LOCALID),
    unless=is_shell,
    table={
        "rank": (number(PROCID),),
        "world_size": (number(STEP_TASKS), number(JOB_TASKS)),
        "local_rank": (number(LOCALID),),
        "local_world_size": (local_world_size, tasks_listed),
        "node_rank": (number(NODEID),),
        "nnodes": (number(STEP_NODES), number(JOB_NODES)),
        "rank_0_host": (rank_0_host,),
        "node_0_host": (node_0_host,),
        "job": (job_and_step,),
        "master_port": (reserved_port,),
    },
    silent={
        "rank_0_host": f"with {DISTRIBUTION}=arbitrary rank 0 may be on any host of the step, "
        f"and {HOSTFILE} cannot be read here"
    },
)

SHELL = Manager(
    name="a shell of a Slurm job",
    kind=HOSTS,
    needs=(JOB_ID, JOB_NODELIST),
    table={
        "nnodes": (number(JOB_NODES),),
        "world_size": (number(JOB_TASKS),),
        "job": (text(JOB_ID),),
    },
)

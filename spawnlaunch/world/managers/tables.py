"""Resource managers that are hardly more than a table, in the order of detection.

Each has an example of its environment, and the page that documents it.
"""

from __future__ import annotations

from spawnlaunch import errors, reading, values
from spawnlaunch.world import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def listed_hosts(name: str, environ: identity.Environ) -> identity.Fact | None:
    """The hosts of the file that a variable names: the first word of each line, each host once.

    PBS, Grid Engine and LSF write a line per slot, so hosts repeat.

    >>> listed_hosts("PBS_NODEFILE", {"PBS_NODEFILE": "/no/such/file"})
    """
    path = environ.get(name)
    lines = (reading.file_text(path) or "").splitlines() if path else []
    hosts = tuple(dict.fromkeys(line.split()[0] for line in lines if line.strip()))
    return identity.Fact(hosts, name) if hosts else None


# Flux: flux run, one process per rank.
#
#     FLUX_TASK_RANK=2  FLUX_JOB_SIZE=4  FLUX_TASK_LOCAL_ID=0  FLUX_JOB_NNODES=2  FLUX_JOB_ID=f4Zx3
#
# It exports neither the tasks on this node nor the number of the node; on one node both are plain.
# Source: flux-environment(7).
FLUX_SIZE = "FLUX_JOB_SIZE"
FLUX_NODES = "FLUX_JOB_NNODES"


def flux_tasks_here(environ: identity.Environ) -> identity.Fact | None:
    """Tasks on this node: all of them on one node; one each where there are as many nodes."""
    size, nodes = identity.number(FLUX_SIZE, environ), identity.number(FLUX_NODES, environ)
    if size is None or nodes is None:
        return None
    if nodes.value == 1:
        return identity.Fact(size.value, f"{FLUX_SIZE} on one node ({FLUX_NODES})")
    are_equal = identity.Fact(1, f"{FLUX_SIZE} and {FLUX_NODES} are equal")
    return are_equal if nodes.value == size.value else None


FLUX = identity.Manager(
    "Flux",
    identity.TASKS,
    needs=("FLUX_TASK_RANK", FLUX_SIZE, "FLUX_TASK_LOCAL_ID"),
    starter="flux run -N{nodes} --exclusive --tasks-per-node={n} {command}",
    rank="FLUX_TASK_RANK",
    world_size=FLUX_SIZE,
    local_rank="FLUX_TASK_LOCAL_ID",
    local_world_size=flux_tasks_here,
    nnodes=FLUX_NODES,
    job="FLUX_JOB_ID",
)

# LSF with jsrun (Summit, Lassen): one process per rank.
#
#     JSM_NAMESPACE_RANK=2  JSM_NAMESPACE_SIZE=4
#     JSM_NAMESPACE_LOCAL_RANK=0  JSM_NAMESPACE_LOCAL_SIZE=2
#     LSB_JOBID=1234  LSB_DJOB_RANKFILE=/path: a host per slot, the launch node first
#
# A job may run jsrun many times, each on some of its hosts; JSM_NAMESPACE_ID tells them apart where
# it is set.
# Source: Lightning's LSF environment; hydra's lsf_query_node_list.c; IBM Spectrum LSF's reference
# of environment variables.
JSM_SIZE = "JSM_NAMESPACE_SIZE"
JSM_LOCAL_SIZE = "JSM_NAMESPACE_LOCAL_SIZE"
JSM_ID = "JSM_NAMESPACE_ID"
LSF_JOB = "LSB_JOBID"
LSF_ARRAY = "LSB_JOBINDEX"
RANKFILE = "LSB_DJOB_RANKFILE"


def jsrun_host(environ: identity.Environ) -> identity.Fact | None:
    """The first compute host, where this jsrun uses them all: the launch node is above them."""
    listed, size = listed_hosts(RANKFILE, environ), identity.number(JSM_SIZE, environ)
    each, hosts = identity.number(JSM_LOCAL_SIZE, environ), listed.value[1:] if listed else ()
    if not hosts or size is None or each is None or size.value != each.value * len(hosts):
        return None
    return identity.Fact(hosts[0], f"second host of {RANKFILE}")


def jsrun_job(environ: identity.Environ) -> identity.Fact | None:
    """The numbers of the job, of the task in an array (0: it is none), and of the jsrun in it."""
    names = [n for n in (LSF_JOB, LSF_ARRAY, JSM_ID) if environ.get(n, "") not in ("", "0")]
    numbers = ".".join(environ[name] for name in names)
    return identity.Fact(numbers, ".".join(names)) if LSF_JOB in names else None


JSRUN = identity.Manager(
    "LSF jsrun",
    identity.TASKS,
    needs=("JSM_NAMESPACE_RANK", JSM_SIZE, "JSM_NAMESPACE_LOCAL_RANK"),
    starter="jsrun --rs_per_host 1 --tasks_per_rs {n} {command}",
    rank="JSM_NAMESPACE_RANK",
    world_size=JSM_SIZE,
    local_rank="JSM_NAMESPACE_LOCAL_RANK",
    local_world_size=JSM_LOCAL_SIZE,
    rank_0_host=jsrun_host,
    node_0_host=jsrun_host,
    job=jsrun_job,
    silent={
        "rank_0_host": f"{RANKFILE} names no host of rank 0 here: it cannot be read, or this jsrun "
        "uses some of its hosts only"
    },
)

# HPE PALS: mpiexec on Aurora and Polaris, one process per rank.
#
#     PALS_RANKID=2  PALS_LOCAL_RANKID=0  PALS_LOCAL_SIZE=2  PALS_NODEID=1  PALS_APID=<uuid>
#     PMI_SIZE=4 (with PMI) and no size of its own
#
# Under Slurm the cray_shasta plugin sets PALS_* as well; so Slurm comes before it.
# Source: flux-framework/flux-coral2 src/shell/plugins/cray_pals.c; the user guides of ALCF.
PALS = identity.Manager(
    "HPE PALS",
    identity.TASKS,
    needs=("PALS_RANKID", "PALS_LOCAL_RANKID"),
    starter="mpiexec --ppn {n} {command}",
    rank=("PALS_RANKID", "PMI_RANK"),
    world_size="PMI_SIZE",
    local_rank=("PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"),
    local_world_size=("PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"),
    node_rank="PALS_NODEID",
    job="PALS_APID",
)

# Kubeflow Trainer: one launcher per pod, told by torchrun's own variables.
#
#     PET_NNODES=2  PET_NPROC_PER_NODE=4  PET_NODE_RANK=1
#     PET_MASTER_ADDR=job-node-0-0.job  PET_MASTER_PORT=29400
#
# As torchrun's flags, PET_NNODES may be MIN:MAX, and PET_NPROC_PER_NODE auto, gpu or cpu.
# Source: kubeflow/trainer pkg/constants/constants.go; torch/distributed/argparse_util.py.
PET_NNODES = "PET_NNODES"


def pet_flag(
    name: str, read: Callable[[str], int | str], environ: identity.Environ
) -> identity.Fact | None:
    """What a variable says that has the values of one of our flags. Raises UsageError."""
    try:
        return identity.Fact(read(environ[name]), name) if environ.get(name) else None
    except ValueError as error:
        raise errors.UsageError(f"{name}: {error}") from None


KUBEFLOW = identity.Manager(
    "Kubeflow",
    identity.NODES,
    needs=(PET_NNODES, "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"),
    node_rank="PET_NODE_RANK",
    nnodes=lambda environ: pet_flag(PET_NNODES, lambda said: values.nnodes(said).most, environ),
    least_nodes=lambda environ: pet_flag(
        PET_NNODES, lambda said: values.nnodes(said).least, environ
    ),
    nproc=lambda environ: pet_flag("PET_NPROC_PER_NODE", values.nproc, environ),
    master_addr="PET_MASTER_ADDR",
    master_port="PET_MASTER_PORT",
)

# Platforms that export torch's own variables, all four, per pod or container.
#
#     RANK=1  WORLD_SIZE=4  MASTER_ADDR=job-master-0  MASTER_PORT=23456
#
# One process per rank; with --nproc there is one launcher per container, and RANK is the node's, as
# torchrun's users write it there. The same four beside TORCHELASTIC_RUN_ID are what an outer
# launcher left behind, and no platform's.
# Source: torch.distributed, "Environment variable initialization"; Kubeflow's PyTorchJob.
LOCAL_RANK = "LOCAL_RANK"
LOCAL_SIZE = "LOCAL_WORLD_SIZE"


def if_alone(value: int, environ: identity.Environ) -> identity.Fact | None:
    """What is not exported where there is one process per container."""
    if environ.get(LOCAL_RANK) or environ.get(LOCAL_SIZE):
        return None
    return identity.Fact(value, f"one process per container ({LOCAL_RANK} is not set)")


PLATFORM = identity.Manager(
    "the platform (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT)",
    identity.TASKS,
    needs=("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    unless=lambda environ: "TORCHELASTIC_RUN_ID" in environ,
    gives_ranks=True,
    rank="RANK",
    world_size="WORLD_SIZE",
    local_rank=(LOCAL_RANK, lambda environ: if_alone(0, environ)),
    local_world_size=(LOCAL_SIZE, lambda environ: if_alone(1, environ)),
    node_rank=("NODE_RANK", "GROUP_RANK"),
    master_addr="MASTER_ADDR",
    master_port="MASTER_PORT",
)

# A Kubernetes Indexed Job: one launcher per pod, which knows its index and nothing else.
#
#     JOB_COMPLETION_INDEX=1
#
# The number of pods and the host of the first one (job-0.subdomain, with a headless service) are
# known to the job's manifest only.
# Source: kubernetes.io, "Jobs", completion mode Indexed.
KUBERNETES = identity.Manager(
    "Kubernetes Indexed Job",
    identity.NODES,
    needs=("JOB_COMPLETION_INDEX",),
    node_rank="JOB_COMPLETION_INDEX",
    silent={
        "nnodes": "a Kubernetes Indexed Job exports no number of pods, and with --standalone each "
        "pod is a job of its own",
        "node_0_host": "a Kubernetes Indexed Job exports no host of its first pod, which a "
        "headless service makes known as JOB-0.SERVICE",
    },
)

# PBS without an MPI: a list of hosts, and a process on one of them.
#
#     PBS_JOBID=123.server  PBS_NODEFILE=/var/spool/pbs/aux/123.server: a line per slot
#
# Source: qsub(1B), "Environment Variables"; pbsdsh(1B).
NODEFILE = "PBS_NODEFILE"
PBS = identity.Manager(
    "PBS",
    identity.HOSTS,
    needs=("PBS_JOBID", NODEFILE),
    hosts=lambda environ: listed_hosts(NODEFILE, environ),
    job="PBS_JOBID",
    silent={"nnodes": f"{NODEFILE} cannot be read here"},
)

# Grid Engine: a list of hosts, and a process on the first of them.
#
#     JOB_ID=77  NSLOTS=8  NHOSTS=2  PE_HOSTFILE=/path: "host slots queue processors" a line
#     SGE_TASK_ID=3, or undefined where the job is no array
#
# NSLOTS counts slots, which a site may mean as cores or as anything else: it is never a world size.
# Without a parallel environment there is no PE_HOSTFILE, and the job has one host.
# Source: qsub(1), "Environmental variables"; sge_pe(5), "$pe_hostfile".
PE_FILE = "PE_HOSTFILE"


def one_host(environ: identity.Environ) -> identity.Fact | None:
    """The number of hosts without a parallel environment."""
    alone = identity.Fact(1, f"no parallel environment ({PE_FILE})")
    return None if environ.get(PE_FILE) else alone


def job_or_array_task(environ: identity.Environ) -> identity.Fact:
    """The tasks of an array have one job's number."""
    task = environ.get("SGE_TASK_ID", "")
    if task in ("", "undefined"):
        return identity.Fact(environ["JOB_ID"], "JOB_ID")
    return identity.Fact(f"{environ['JOB_ID']}.{task}", "JOB_ID.SGE_TASK_ID")


GRIDENGINE = identity.Manager(
    "Grid Engine",
    identity.HOSTS,
    needs=("JOB_ID", "NSLOTS"),
    hosts=lambda environ: listed_hosts(PE_FILE, environ),
    nnodes=("NHOSTS", one_host),
    job=job_or_array_task,
    silent={"nnodes": f"{PE_FILE} cannot be read here, and NHOSTS is not set"},
)

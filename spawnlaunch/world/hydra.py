"""Hydra, the mpiexec of MPICH and of Intel MPI: one process per rank.

    PMI_RANK=2  PMI_SIZE=4  MPI_LOCALRANKID=0  MPI_LOCALNRANKS=2

PMI_RANK alone proves nothing: Slurm's PMI plugins set it too, but not the local pair. Nothing that
it exports names the host of rank 0, the nodes, or the launch; on one node the launch is known by
the process of Hydra that all ranks descend from. Inside a Slurm job the host is known from the
job's nodes, and the launch by the step in which srun has started Hydra's processes on the nodes.
Source: pmodels/mpich src/pm/hydra/proxy/pmip_cb.c; Intel MPI Developer Reference, "Hydra
environment variables".
"""

from spawnlaunch.world import mpirun, slurm
from spawnlaunch.world.ancestors import nearest
from spawnlaunch.world.facts import Environ, Fact, number
from spawnlaunch.world.manager import TASKS, Manager

RANK = "PMI_RANK"
SIZE = "PMI_SIZE"
LOCAL_RANK = "MPI_LOCALRANKID"
LOCAL_SIZE = "MPI_LOCALNRANKS"
PROXY = "hydra_pmi_proxy"  # what starts the ranks of a node


def proxy(environ: Environ) -> Fact | None:
    """The proxy's pid, where it is the parent of all ranks: on one node."""
    if environ[SIZE] != environ[LOCAL_SIZE]:
        return None
    pid = nearest((PROXY,))
    if pid is None:
        return None
    return Fact(f"{PROXY}-{pid}", f"pid of {PROXY}, all ranks being on this node")


def step_of_proxies(environ: Environ) -> Fact | None:
    """The step of Slurm that all ranks have in common: each mpiexec starts one."""
    there = environ.get(slurm.JOB_ID) and environ.get(slurm.STEP_ID)
    return slurm.job_and_step(environ) if there else None


MANAGER = Manager(
    name="Hydra (MPICH, Intel MPI)",
    kind=TASKS,
    needs=(RANK, SIZE, LOCAL_RANK, LOCAL_SIZE),
    table={
        "rank": (number(RANK),),
        "world_size": (number(SIZE),),
        "local_rank": (number(LOCAL_RANK),),
        "local_world_size": (number(LOCAL_SIZE),),
        "job": (proxy, step_of_proxies),
        **mpirun.table(SIZE, LOCAL_SIZE),
    },
    starter=lambda n, _, command: f"mpiexec -ppn {n} {command}",
)

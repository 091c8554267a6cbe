"""Hydra, the mpiexec of MPICH and of Intel MPI: one process per rank.

    PMI_RANK=2  PMI_SIZE=4  MPI_LOCALRANKID=0  MPI_LOCALNRANKS=2

PMI_RANK alone proves nothing: Slurm's PMI plugins set it too, but not the local pair. Nothing that
it exports names the host of rank 0, the nodes, or the launch; on one node the launch is known by
the process of Hydra that all ranks descend from. Inside a Slurm job the host is known from the
job's nodes, and the launch by the step in which srun has started Hydra's processes on the nodes.
Source: pmodels/mpich src/pm/hydra/proxy/pmip_cb.c; Intel MPI Developer Reference, "Hydra
environment variables".
"""

from __future__ import annotations

from spawnlaunch.node.proc import nearest
from spawnlaunch.world.managers.slurm import first_node_of_mpirun, job_and_step, own_host_of_mpirun
from spawnlaunch.world.model import TASKS, Environ, Fact, Manager

SIZE = "PMI_SIZE"
LOCAL_SIZE = "MPI_LOCALNRANKS"
PROXY = "hydra_pmi_proxy"  # what starts the ranks of a node


def proxy(environ: Environ) -> Fact | None:
    """The proxy's pid, where it is the parent of all ranks: on one node."""
    pid = nearest((PROXY,)) if environ[SIZE] == environ[LOCAL_SIZE] else None
    if pid is None:
        return None
    return Fact(f"{PROXY}-{pid}", f"pid of {PROXY}, all ranks being on this node")


FIRST_NODE = first_node_of_mpirun(SIZE, LOCAL_SIZE)

MANAGER = Manager(
    "Hydra (MPICH, Intel MPI)",
    TASKS,
    needs=("PMI_RANK", SIZE, "MPI_LOCALRANKID", LOCAL_SIZE),
    starter="mpiexec -ppn {n} {command}",
    rank="PMI_RANK",
    world_size=SIZE,
    local_rank="MPI_LOCALRANKID",
    local_world_size=LOCAL_SIZE,
    job=(proxy, job_and_step),  # of Slurm: each mpiexec starts a step, which all ranks are in
    rank_0_host=FIRST_NODE,
    node_0_host=FIRST_NODE,
    own_host=own_host_of_mpirun,
)

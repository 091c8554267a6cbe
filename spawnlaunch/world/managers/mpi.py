"""Open MPI and Hydra: mpirun or mpiexec, one process per rank.

Neither exports the host of rank 0. Inside a Slurm job it is known from the job's nodes.
"""

from __future__ import annotations

import os

from spawnlaunch.node import proc
from spawnlaunch.world import identity
from spawnlaunch.world.managers import slurm


def first_node(size: str, local_size: str) -> identity.Reader:
    """A reader of rank 0's host, by the variables with the number of ranks, in all and here.

    Inside a Slurm job mpirun begins with the job's first node, unless it was told otherwise. Every
    rank has the job's list of nodes, so all derive the same host. Whether rank 0 is there, as it is
    not under --rankfile or --host with another order, rank 0 sees.
    """

    def read(environ: identity.Environ) -> identity.Fact | None:
        is_known = environ.get(slurm.JOB_ID) and environ.get(slurm.JOB_NODELIST)
        is_alone = environ[size] == environ[local_size]  # its ranks may be on any node
        if not is_known or is_alone or environ.get(slurm.HET_SIZE):
            return None
        return slurm.first_of(slurm.JOB_NODELIST, environ)

    return read


def programs(environ: identity.Environ) -> identity.Fact | None:
    """Those of `mpirun a : b`; pmix_server_register_fns.c of Open MPI."""
    count = identity.number("OMPI_NUM_APP_CTX", environ)
    return count and count._replace(source=f"{count.source}={count.value}")


def own_host(_: identity.Environ) -> identity.Fact:
    """SLURMD_NODENAME may be that of mpirun, whose environment Hydra hands on."""
    return identity.Fact(os.uname().nodename, "its host name")


# Open MPI 4 and 5.
#
#     OMPI_COMM_WORLD_RANK=2  OMPI_COMM_WORLD_SIZE=4
#     OMPI_COMM_WORLD_LOCAL_RANK=0  OMPI_COMM_WORLD_LOCAL_SIZE=2
#     PMIX_NAMESPACE=1880752129 (version 4)  prterun-host-4711@1 (version 5)
#     OMPI_MCA_orte_num_nodes=2 (version 4 only): those that have a rank
#
# OMPI_MCA_orte_hnp_uri (version 4 only) has the host of mpirun itself, not that of rank 0.
# OMPI_COMM_WORLD_NODE_RANK is a rank on the node, not the number of the node.
# Source: openmpi/openpmix src/mca/pmdl/ompi/pmdl_ompi.c; mpirun(1), "Exported environment".
RANK = "OMPI_COMM_WORLD_RANK"
SIZE = "OMPI_COMM_WORLD_SIZE"
LOCAL_RANK = "OMPI_COMM_WORLD_LOCAL_RANK"
LOCAL_SIZE = "OMPI_COMM_WORLD_LOCAL_SIZE"

OPENMPI = identity.Manager(
    "Open MPI",
    identity.TASKS,
    needs=(RANK, SIZE, LOCAL_RANK, LOCAL_SIZE),
    starter="mpirun --map-by ppr:{n}:node {command}",
    rank=RANK,
    world_size=SIZE,
    local_rank=LOCAL_RANK,
    local_world_size=LOCAL_SIZE,
    nnodes="OMPI_MCA_orte_num_nodes",
    job=("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    rank_0_host=first_node(SIZE, LOCAL_SIZE),
    node_0_host=first_node(SIZE, LOCAL_SIZE),
    own_host=own_host,
    programs=programs,
)

# Hydra, the mpiexec of MPICH and of Intel MPI.
#
#     PMI_RANK=2  PMI_SIZE=4  MPI_LOCALRANKID=0  MPI_LOCALNRANKS=2
#
# PMI_RANK alone proves nothing: Slurm's PMI plugins set it too, but not the local pair. Nothing
# names the nodes or the launch. On one node the launch is known by the process of Hydra that all
# ranks descend from; inside a Slurm job by the step in which srun has started Hydra's processes on
# the nodes: each mpiexec starts one, which all ranks are in.
# Source: pmodels/mpich src/pm/hydra/proxy/pmip_cb.c; Intel MPI Developer Reference, "Hydra
# environment variables".
PMI_SIZE = "PMI_SIZE"
PMI_LOCAL_SIZE = "MPI_LOCALNRANKS"
PROXY = "hydra_pmi_proxy"  # what starts the ranks of a node


def proxy(environ: identity.Environ) -> identity.Fact | None:
    """The proxy's pid, where it is the parent of all ranks: on one node."""
    pid = proc.nearest((PROXY,)) if environ[PMI_SIZE] == environ[PMI_LOCAL_SIZE] else None
    if pid is None:
        return None
    return identity.Fact(f"{PROXY}-{pid}", f"pid of {PROXY}, all ranks being on this node")


HYDRA = identity.Manager(
    "Hydra (MPICH, Intel MPI)",
    identity.TASKS,
    needs=("PMI_RANK", PMI_SIZE, "MPI_LOCALRANKID", PMI_LOCAL_SIZE),
    starter="mpiexec -ppn {n} {command}",
    rank="PMI_RANK",
    world_size=PMI_SIZE,
    local_rank="MPI_LOCALRANKID",
    local_world_size=PMI_LOCAL_SIZE,
    job=(proxy, slurm.job_and_step),
    rank_0_host=first_node(PMI_SIZE, PMI_LOCAL_SIZE),
    node_0_host=first_node(PMI_SIZE, PMI_LOCAL_SIZE),
    own_host=own_host,
    programs=slurm.programs,
)

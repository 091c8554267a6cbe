"""Open MPI and Hydra: mpirun or mpiexec, one process per rank.

Neither exports the host of rank 0. Inside a Slurm job it comes from the job's list of nodes.
"""

from __future__ import annotations

import os

from spawnlaunch.node import proc
from spawnlaunch.world import identity
from spawnlaunch.world.managers import slurm


class Mpi(identity.Manager):
    """A task of an MPI launcher: the answers that Open MPI and Hydra share."""

    kind = identity.TASKS

    def rank_0_host(self, environ: identity.Environ) -> identity.Fact | None:
        """The first node of the surrounding Slurm job; None outside of one.

        By default mpirun places rank 0 there. Every rank has the job's list of nodes, so all derive
        the same host. Under --rankfile or --host with another order rank 0 is elsewhere: rank 0
        itself then sees that.
        """
        is_known = environ.get(slurm.JOB_ID) and environ.get(slurm.JOB_NODELIST)
        size, here = self.world_size(environ), self.local_world_size(environ)
        is_alone = size and here and size.value == here.value  # the one node may be any of the job
        if not is_known or is_alone or environ.get(slurm.HET_SIZE):
            return None
        return slurm.first_of(slurm.JOB_NODELIST, environ)

    def node_0_host(self, environ: identity.Environ) -> identity.Fact | None:
        return self.rank_0_host(environ)

    def own_host(self, environ: identity.Environ) -> identity.Fact | None:
        """This host's name, not SLURMD_NODENAME: Hydra hands that on from mpirun's host."""
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


class OpenMpi(Mpi):
    """A task of mpirun."""

    name = "Open MPI"
    needs = (RANK, SIZE, LOCAL_RANK, LOCAL_SIZE)

    def rank(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.number(RANK, environ)

    def world_size(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.number(SIZE, environ)

    def local_rank(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.number(LOCAL_RANK, environ)

    def local_world_size(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.number(LOCAL_SIZE, environ)

    def nnodes(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.number("OMPI_MCA_orte_num_nodes", environ)

    def job(self, environ: identity.Environ) -> identity.Fact | None:
        names = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")
        return identity.first(identity.text(name, environ) for name in names)

    def tasks_line(self, environ: identity.Environ, command: str, n: int) -> str:
        return f"mpirun --map-by ppr:{n}:node {command}"


OPENMPI = OpenMpi()

# Hydra, the mpiexec of MPICH and of Intel MPI.
#
#     PMI_RANK=2  PMI_SIZE=4  MPI_LOCALRANKID=0  MPI_LOCALNRANKS=2
#
# PMI_RANK alone proves nothing: Slurm's PMI plugins set it too, but not the local pair. No variable
# names the nodes or the launch. On one node the pid of Hydra's proxy, the ancestor of all ranks,
# identifies the launch. Inside a Slurm job the step does: each mpiexec starts one step, in which
# srun starts Hydra's proxies on the nodes.
# Source: pmodels/mpich src/pm/hydra/proxy/pmip_cb.c; Intel MPI Developer Reference, "Hydra
# environment variables".
PMI_SIZE = "PMI_SIZE"
PMI_LOCAL_SIZE = "MPI_LOCALNRANKS"
PROXY = "hydra_pmi_proxy"  # the process that starts the ranks of a node


class Hydra(Mpi):
    """A task of Hydra's mpiexec."""

    name = "Hydra (MPICH, Intel MPI)"
    needs = ("PMI_RANK", PMI_SIZE, "MPI_LOCALRANKID", PMI_LOCAL_SIZE)

    def rank(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.number("PMI_RANK", environ)

    def world_size(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.number(PMI_SIZE, environ)

    def local_rank(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.number("MPI_LOCALRANKID", environ)

    def local_world_size(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.number(PMI_LOCAL_SIZE, environ)

    def job(self, environ: identity.Environ) -> identity.Fact | None:
        """The proxy's pid on one node, where it is an ancestor of all ranks; else Slurm's step."""
        pid = proc.nearest((PROXY,)) if environ[PMI_SIZE] == environ[PMI_LOCAL_SIZE] else None
        if pid is None:
            return slurm.job_and_step(environ)
        return identity.Fact(f"{PROXY}-{pid}", f"pid of {PROXY}, all ranks being on this node")

    def tasks_line(self, environ: identity.Environ, command: str, n: int) -> str:
        return f"mpiexec -ppn {n} {command}"


HYDRA = Hydra()

"""Managers that start one process per rank, but for Slurm: Open MPI, Hydra, Flux, HPE PALS."""

from __future__ import annotations

import os

from spawnlaunch.node import proc
from spawnlaunch.world import identity
from spawnlaunch.world.managers import slurm


class Mpi(identity.Manager):
    """A task of Open MPI's or Hydra's mpirun, of which neither exports the host of rank 0."""

    kind = identity.TASKS

    def rank_0_host(self) -> identity.Fact | None:
        """The first node of the surrounding Slurm job; None outside of one.

        By default mpirun places rank 0 there. Every rank has the job's list of nodes, so all derive
        the same host. Under --rankfile or --host with another order rank 0 is elsewhere: rank 0
        itself then sees that.
        """
        environ, size, here = self.environ, self.world_size(), self.local_world_size()
        is_known = environ.get(slurm.JOB_ID) and environ.get(slurm.JOB_NODELIST)
        is_single = size and here and size.value == here.value  # the one node may be any of the job
        if not is_known or is_single or environ.get(slurm.HET_SIZE):
            return None
        return slurm.first_of(slurm.JOB_NODELIST, environ)

    def node_0_host(self) -> identity.Fact | None:
        return self.rank_0_host()

    def host_name(self) -> identity.Fact | None:
        """This host's name, not SLURMD_NODENAME: Hydra hands that on from mpirun's host."""
        return identity.Fact(os.uname().nodename, "its host name")


class OpenMpi(Mpi):
    """A task of Open MPI's mpirun, version 4 or 5.

        OMPI_COMM_WORLD_RANK=2  OMPI_COMM_WORLD_SIZE=4
        OMPI_COMM_WORLD_LOCAL_RANK=0  OMPI_COMM_WORLD_LOCAL_SIZE=2
        PMIX_NAMESPACE=1880752129 (version 4)  prterun-host-4711@1 (version 5)
        OMPI_MCA_orte_num_nodes=2 (version 4 only): those that have a rank

    OMPI_MCA_orte_hnp_uri (version 4 only) has the host of mpirun itself, not that of rank 0.
    OMPI_COMM_WORLD_NODE_RANK is a rank on the node, not the number of the node.
    Source: openmpi/openpmix src/mca/pmdl/ompi/pmdl_ompi.c; mpirun(1), "Exported environment".
    """

    name = "Open MPI"
    rank_from = ("OMPI_COMM_WORLD_RANK",)
    world_size_from = ("OMPI_COMM_WORLD_SIZE",)
    local_rank_from = ("OMPI_COMM_WORLD_LOCAL_RANK",)
    local_world_size_from = ("OMPI_COMM_WORLD_LOCAL_SIZE",)
    needs = (*rank_from, *world_size_from, *local_rank_from, *local_world_size_from)
    nnodes_from = ("OMPI_MCA_orte_num_nodes",)
    job_from = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")

    def start_line(self, command: str, n: int) -> str:
        return f"mpirun --map-by ppr:{n}:node {command}"


class Hydra(Mpi):
    """A task of Hydra, the mpiexec of MPICH and of Intel MPI.

        PMI_RANK=2  PMI_SIZE=4  MPI_LOCALRANKID=0  MPI_LOCALNRANKS=2

    PMI_RANK alone proves nothing: Slurm's PMI plugins set it too, but not the local pair. No
    variable names the nodes or the launch.
    Source: pmodels/mpich src/pm/hydra/proxy/pmip_cb.c; Intel MPI Developer Reference, "Hydra
    environment variables".
    """

    name = "Hydra (MPICH, Intel MPI)"
    rank_from = ("PMI_RANK",)
    world_size_from = ("PMI_SIZE",)
    local_rank_from = ("MPI_LOCALRANKID",)
    local_world_size_from = ("MPI_LOCALNRANKS",)
    needs = (*rank_from, *world_size_from, *local_rank_from, *local_world_size_from)
    proxy = "hydra_pmi_proxy"  # the process that starts the ranks of a node

    def job(self) -> identity.Fact | None:
        """The pid of the proxy, on one node an ancestor of all ranks; else Slurm's step.

        Inside a Slurm job each mpiexec starts one step, in which srun starts the proxies.
        """
        is_single = self.environ["PMI_SIZE"] == self.environ["MPI_LOCALNRANKS"]
        pid = proc.nearest((self.proxy,)) if is_single else None
        if pid is None:
            return slurm.job_and_step(self.environ)
        return identity.Fact(
            f"{self.proxy}-{pid}", f"pid of {self.proxy}, all ranks being on this node"
        )

    def start_line(self, command: str, n: int) -> str:
        return f"mpiexec -ppn {n} {command}"


class Flux(identity.Manager):
    """A task of `flux run`.

        FLUX_TASK_RANK=2  FLUX_JOB_SIZE=4  FLUX_TASK_LOCAL_ID=0  FLUX_JOB_NNODES=2
        FLUX_JOB_ID=f4Zx3

    It exports neither the number of tasks on this node nor the node's rank; on one node both are
    known. Source: flux-environment(7).
    """

    name = "Flux"
    kind = identity.TASKS
    rank_from = ("FLUX_TASK_RANK",)
    world_size_from = ("FLUX_JOB_SIZE",)
    local_rank_from = ("FLUX_TASK_LOCAL_ID",)
    needs = (*rank_from, *world_size_from, *local_rank_from)
    nnodes_from = ("FLUX_JOB_NNODES",)
    job_from = ("FLUX_JOB_ID",)

    def local_world_size(self) -> identity.Fact | None:
        """The number of tasks on this node: all on one node, or one where each node has one."""
        size, nodes = self.world_size(), self.nnodes()
        if size and nodes and nodes.value == 1:
            return identity.Fact(size.value, f"{size.source} on one node ({nodes.source})")
        if size and nodes and nodes.value == size.value:
            return identity.Fact(1, f"{size.source} and {nodes.source} are equal")
        return None

    def start_line(self, command: str, n: int) -> str:
        nodes = self.nnodes()
        where = f"-N{nodes.value if nodes else 'N'} --exclusive --tasks-per-node={n}"
        return f"flux run {where} {command}"


class Pals(identity.Manager):
    """A task of HPE PALS' mpiexec, as on Aurora and Polaris.

        PALS_RANKID=2  PALS_LOCAL_RANKID=0  PALS_LOCAL_SIZE=2  PALS_NODEID=1  PALS_APID=<uuid>
        PMI_SIZE=4 (with PMI) and no size of its own

    Source: flux-framework/flux-coral2 src/shell/plugins/cray_pals.c; the user guides of ALCF.
    """

    name = "HPE PALS"
    kind = identity.TASKS
    needs = ("PALS_RANKID", "PALS_LOCAL_RANKID")
    rank_from = ("PALS_RANKID", "PMI_RANK")
    world_size_from = ("PMI_SIZE",)
    local_rank_from = ("PALS_LOCAL_RANKID", "PMI_LOCAL_RANK")
    local_world_size_from = ("PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE")
    node_rank_from = ("PALS_NODEID",)
    job_from = ("PALS_APID",)

    def start_line(self, command: str, n: int) -> str:
        return f"mpiexec --ppn {n} {command}"

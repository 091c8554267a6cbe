"""Open MPI 4 and 5: mpirun, one process per rank.

    OMPI_COMM_WORLD_RANK=2  OMPI_COMM_WORLD_SIZE=4
    OMPI_COMM_WORLD_LOCAL_RANK=0  OMPI_COMM_WORLD_LOCAL_SIZE=2
    PMIX_NAMESPACE=1880752129 (version 4)  prterun-host-4711@1 (version 5)
    OMPI_MCA_orte_num_nodes=2 (version 4 only): those that have a rank

It exports no host of rank 0: OMPI_MCA_orte_hnp_uri (version 4 only) is that of mpirun itself. In a
Slurm job the host is known from the job's nodes.
OMPI_COMM_WORLD_NODE_RANK is a rank on the node, not the number of the node.
Source: openmpi/openpmix src/mca/pmdl/ompi/pmdl_ompi.c; mpirun(1), "Exported environment".
"""

from __future__ import annotations

from spawnlaunch.world.managers.slurm import first_node_of_mpirun, own_host_of_mpirun
from spawnlaunch.world.model import TASKS, Manager

RANK = "OMPI_COMM_WORLD_RANK"
SIZE = "OMPI_COMM_WORLD_SIZE"
LOCAL_RANK = "OMPI_COMM_WORLD_LOCAL_RANK"
LOCAL_SIZE = "OMPI_COMM_WORLD_LOCAL_SIZE"

FIRST_NODE = first_node_of_mpirun(SIZE, LOCAL_SIZE)

MANAGER = Manager(
    "Open MPI",
    TASKS,
    needs=(RANK, SIZE, LOCAL_RANK, LOCAL_SIZE),
    starter="mpirun --map-by ppr:{n}:node {command}",
    rank=RANK,
    world_size=SIZE,
    local_rank=LOCAL_RANK,
    local_world_size=LOCAL_SIZE,
    nnodes="OMPI_MCA_orte_num_nodes",
    job=("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    rank_0_host=FIRST_NODE,
    node_0_host=FIRST_NODE,
    own_host=own_host_of_mpirun,
)

"""Open MPI.

Open MPI 4: recorded from mpirun 4.1.4 of Debian 12, rank 2 of `mpirun -n 4` on two nodes.
Open MPI 5: openpmix src/mca/pmdl/ompi/pmdl_ompi.c and prrte src/mca/schizo.
"""

from tests.world.recorded import HERE, LAUNCH, UNKNOWN, Case, Found, Refused

OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_COMM_WORLD_NODE_RANK": "0",
    "PMIX_NAMESPACE": "732102657",
    "PMIX_RANK": "2",
}
OPEN_MPI_4 = {
    **OPEN_MPI,
    "OMPI_MCA_orte_num_nodes": "2",
    "OMPI_MCA_ess_base_jobid": "732102657",
    "OMPI_MCA_orte_hnp_uri": "732102656.0;tcp://192.0.2.2:49875",
}
OPEN_MPI_5 = {**OPEN_MPI, "PMIX_NAMESPACE": "prterun-login-4711@1", "PRTE_LAUNCHED": "1"}
CASES = [
    Case(
        "version 4 on two nodes",
        OPEN_MPI_4,
        Found(
            "task",
            {
                "rank": (2, "OMPI_COMM_WORLD_RANK"),
                "world_size": (4, "OMPI_COMM_WORLD_SIZE"),
                "local_rank": (0, "OMPI_COMM_WORLD_LOCAL_RANK"),
                "local_world_size": (2, "OMPI_COMM_WORLD_LOCAL_SIZE"),
                "node_rank": (None, UNKNOWN),
                "nnodes": (2, "OMPI_MCA_orte_num_nodes"),
                "master_addr": ("node0", "--master-addr"),
                "run_id": ("732102657", "PMIX_NAMESPACE"),
            },
            "--master-addr node0",
        ),
    ),
    Case(
        "version 5 on two nodes",
        OPEN_MPI_5,
        Found(
            "task",
            {
                "rank": 2,
                "node_rank": (None, UNKNOWN),
                "nnodes": (None, UNKNOWN),
                "run_id": ("prterun-login-4711@1", "PMIX_NAMESPACE"),
            },
            "--master-addr node0",
        ),
    ),
    Case(
        "on one node",
        {**OPEN_MPI_5, "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "2"},
        Found(
            "task",
            {
                "local_rank": 2,
                "node_rank": (0, "all ranks are on this node"),
                "nnodes": 1,
                "master_addr": (HERE, "this host: all ranks are on it"),
            },
        ),
    ),
    Case("no host of rank 0", OPEN_MPI_4, Refused("type --master-addr HOST")),
    Case(
        "one launcher per node",
        {**OPEN_MPI_5, "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}
        | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"},
        Found(
            "node",
            {
                "rank": (3, "node rank x --nproc"),
                "world_size": 6,
                "node_rank": (1, "OMPI_COMM_WORLD_RANK"),
                "nnodes": (2, "OMPI_COMM_WORLD_SIZE"),
            },
            "--nproc 3 --master-addr node0",
        ),
    ),
    Case(
        "a launcher in each of several tasks",
        OPEN_MPI_4,
        Refused(f"mpirun --map-by ppr:1:node {LAUNCH} --nproc=2", "--nproc 2"),
    ),
    Case(
        "a launcher in each of several tasks of another node",
        {**OPEN_MPI_4, "OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"},
        Refused(f"mpirun --map-by ppr:1:node {LAUNCH} --nproc=2", "--nproc 2"),
    ),
    Case(
        "a flag that needs a parent",
        OPEN_MPI_5,
        Refused("one launcher per node: mpirun --map-by ppr:1:node", "--tee 3 --master-addr a"),
    ),
]

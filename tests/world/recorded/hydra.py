"""Hydra.

MPICH: recorded from mpiexec 4.0.2 of Debian 12, rank 2 of `mpiexec -n 3` on two nodes.
Intel MPI: the same Hydra; Intel MPI Library Developer Reference, "Hydra environment variables".
"""

from tests.world.recorded import UNKNOWN, Case, Found, Refused

MPICH = {
    "PMI_RANK": "2",
    "PMI_SIZE": "3",
    "PMI_FD": "6",
    "MPI_LOCALRANKID": "0",
    "MPI_LOCALNRANKS": "1",
    "MPIR_CVAR_CH3_INTERFACE_HOSTNAME": "node1",
}
INTEL_MPI = {
    "PMI_RANK": "1",
    "PMI_SIZE": "4",
    "MPI_LOCALRANKID": "1",
    "MPI_LOCALNRANKS": "2",
    "I_MPI_HYDRA_BOOTSTRAP": "ssh",
    "I_MPI_INFO_NUMA_NODE_NUM": "2",
}
CASES = [
    Case(
        "MPICH on two nodes",
        MPICH,
        Found(
            "task",
            {
                "rank": (2, "PMI_RANK"),
                "world_size": (3, "PMI_SIZE"),
                "local_rank": (0, "MPI_LOCALRANKID"),
                "local_world_size": (1, "MPI_LOCALNRANKS"),
                "node_rank": (None, UNKNOWN),
                "nnodes": (None, UNKNOWN),
                "master_addr": ("node0", "--master-addr"),
                "master_port": 29500,
                "run_id": "none",
            },
            "--master-addr node0",
        ),
    ),
    Case("MPICH: no host of rank 0", MPICH, Refused("type --master-addr HOST")),
    Case(
        "Intel MPI on two nodes",
        INTEL_MPI,
        Found(
            "task",
            {"rank": 1, "world_size": 4, "local_rank": 1, "local_world_size": 2},
            "--master-addr node0 --master-port 23456",
        ),
    ),
    Case(
        "on one node, and nothing tells this launch from another",
        {**INTEL_MPI, "PMI_SIZE": "2"},
        Refused("type --master-port N"),
    ),
    Case(
        "PMI_RANK alone, as Slurm's plugins export it, is no Hydra",
        {"PMI_RANK": "1", "PMI_SIZE": "2"},
        Found("local", {"rank": 0, "world_size": 1}),
    ),
]

"""Platforms that export torch's variables.

torch.distributed, "Environment variable initialization"; PyTorchJob of Kubeflow's operator.
"""

from tests.world.recorded import LAUNCH, UNKNOWN, Case, Found, Refused

PLATFORM = {
    "RANK": "1",
    "WORLD_SIZE": "4",
    "MASTER_ADDR": "job-master-0",
    "MASTER_PORT": "23456",
}
# As a tutorial's script, or somebody who tried something, leaves them.
TRIED = {**PLATFORM, "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
FIRST = {**TRIED, "RANK": "0"}
TWO_HERE = Found("local", {"rank": 0, "world_size": 2, "local_world_size": 2}, "--nproc 2")
CASES = [
    Case("left by somebody, of the first rank", FIRST, TWO_HERE),
    Case("left by somebody, of another rank", TRIED, TWO_HERE),
    Case("left by somebody, in a pod", {**TRIED, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, TWO_HERE),
    Case(
        "left by another launcher", {**FIRST, "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}, TWO_HERE
    ),
    Case(
        "the master of a PyTorchJob",
        {**FIRST, "KUBERNETES_SERVICE_HOST": "10.0.0.1"},
        Found("node", {"node_rank": (0, "RANK"), "nnodes": (2, "WORLD_SIZE")}, "--nproc 2"),
    ),
    Case(
        "one of several processes on a machine, each a rank",
        TRIED,
        Found("task", {"rank": (1, "RANK"), "world_size": (2, "WORLD_SIZE")}),
    ),
    Case(
        "one process per pod",
        PLATFORM,
        Found(
            "task",
            {
                "rank": (1, "RANK"),
                "world_size": (4, "WORLD_SIZE"),
                "local_rank": (0, "one process per container (LOCAL_RANK is not set)"),
                "local_world_size": 1,
                "node_rank": (None, UNKNOWN),
                "nnodes": (None, UNKNOWN),
                "master_addr": ("job-master-0", "MASTER_ADDR"),
                "master_port": (23456, "MASTER_PORT"),
            },
        ),
    ),
    Case(
        "one launcher per pod",
        PLATFORM,
        Found(
            "node",
            {
                "rank": (2, "node rank x --nproc"),
                "world_size": 8,
                "node_rank": (1, "RANK"),
                "nnodes": (4, "WORLD_SIZE"),
                "master_addr": ("job-master-0", "MASTER_ADDR"),
                "master_port": (23456, "MASTER_PORT"),
            },
            "--nproc 2",
        ),
    ),
    Case(
        "several processes per container",
        {**PLATFORM, "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "0"},
        Found(
            "task",
            {
                "local_rank": (1, "LOCAL_RANK"),
                "local_world_size": (2, "LOCAL_WORLD_SIZE"),
                "node_rank": (0, "NODE_RANK"),
            },
        ),
    ),
    Case(
        "a local rank without its size",
        {**PLATFORM, "LOCAL_RANK": "1"},
        Refused("type --local-world-size N"),
    ),
    Case(
        "a local size without a rank",
        {**PLATFORM, "LOCAL_WORLD_SIZE": "2"},
        Refused("type export LOCAL_RANK=N for each"),
    ),
    Case(
        "a launcher in each of several processes",
        {**PLATFORM, "LOCAL_RANK": "1"},
        Refused(f"one launcher per node: {LAUNCH} --nproc=2", "--nproc 2"),
    ),
    Case(
        "a rank that is none",
        {**PLATFORM, "RANK": "$OMPI_COMM_WORLD_RANK"},
        Refused("RANK='$OMPI_COMM_WORLD_RANK' is not a whole number; type unset RANK"),
    ),
    Case(
        "a rank beyond the size",
        {**PLATFORM, "RANK": "4"},
        Refused("RANK says rank 4 and WORLD_SIZE says world size 4, which cannot both be"),
    ),
    Case(
        "this container alone",
        PLATFORM,
        Found("local", {"rank": 0, "world_size": 2, "master_addr": "127.0.0.1"})._replace(
            flags="--nproc 2 --standalone"
        ),
    ),
]

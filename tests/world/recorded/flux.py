"""Flux.

flux-environment(7).
"""

from tests.world.recorded import HERE, LAUNCH, UNKNOWN, Case, Found, Refused

FLUX = {
    "FLUX_JOB_ID": "f4Zx3",
    "FLUX_JOB_SIZE": "4",
    "FLUX_JOB_NNODES": "1",
    "FLUX_TASK_RANK": "2",
    "FLUX_TASK_LOCAL_ID": "2",
    "PMI_RANK": "2",
    "PMI_SIZE": "4",
}
CASES = [
    Case(
        "one node",
        FLUX,
        Found(
            "task",
            {
                "rank": (2, "FLUX_TASK_RANK"),
                "world_size": (4, "FLUX_JOB_SIZE"),
                "local_rank": (2, "FLUX_TASK_LOCAL_ID"),
                "local_world_size": (4, "FLUX_JOB_SIZE on one node (FLUX_JOB_NNODES)"),
                "node_rank": 0,
                "nnodes": (1, "FLUX_JOB_NNODES"),
                "master_addr": HERE,
                "run_id": ("f4Zx3", "FLUX_JOB_ID"),
            },
        ),
    ),
    Case(
        "a task on each of four nodes",
        {**FLUX, "FLUX_JOB_NNODES": "4", "FLUX_TASK_LOCAL_ID": "0"},
        Found(
            "task",
            {
                "local_world_size": (1, "FLUX_JOB_SIZE and FLUX_JOB_NNODES are equal"),
                "node_rank": (None, UNKNOWN),
                "nnodes": 4,
            },
            "--master-addr node0",
        ),
    ),
    Case(
        "some tasks on each of two nodes",
        {**FLUX, "FLUX_JOB_NNODES": "2", "FLUX_TASK_LOCAL_ID": "0"},
        Refused("type --local-world-size N", "--master-addr node0"),
    ),
    Case(
        "some tasks on each of two nodes, as typed",
        {**FLUX, "FLUX_JOB_NNODES": "2", "FLUX_TASK_LOCAL_ID": "0"},
        Found(
            "task",
            {"local_world_size": (2, "--local-world-size"), "node_rank": None, "nnodes": 2},
            "--local-world-size 2 --master-addr node0",
        ),
    ),
    Case(
        "a launcher in each of two tasks on each of two nodes",
        {**FLUX, "FLUX_JOB_NNODES": "2", "FLUX_TASK_RANK": "1", "FLUX_TASK_LOCAL_ID": "0"},
        Refused(
            f"flux run -N2 --exclusive --tasks-per-node=1 {LAUNCH} --nproc=2",
            "--nproc 2 --master-addr node0",
        ),
    ),
]

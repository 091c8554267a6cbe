"""Grid Engine.

qsub(1), "Environmental variables"; sge_pe(5): "host slots queue processors".
"""

from tests.world.recorded import HERE, Case, Found

GRID_ENGINE = {
    "JOB_ID": "77",
    "NSLOTS": "8",
    "NHOSTS": "2",
    "SGE_TASK_ID": "undefined",
    "PE_HOSTFILE": "{files}/hosts",
}
CASES = [
    Case(
        "two hosts",
        GRID_ENGINE,
        Found(
            "node",
            {
                "rank": 0,
                "world_size": 6,
                "node_rank": (0, f"place of {HERE} in PE_HOSTFILE"),
                "nnodes": (2, "NHOSTS"),
                "master_addr": (HERE, "first host of PE_HOSTFILE"),
                "run_id": ("77", "JOB_ID"),
            },
            "--nproc 3",
        ),
        {"hosts": f"{HERE} 4 all.q@{HERE} UNDEFINED\nsecond 4 all.q@second UNDEFINED\n"},
    ),
    Case(
        "slots are no workers",
        {"JOB_ID": "77", "NSLOTS": "8", "NHOSTS": "1"},
        Found("local", {"world_size": 1, "run_id": "77"}),
    ),
    Case(
        "without a parallel environment",
        {"JOB_ID": "77", "NSLOTS": "1"},
        Found("local", {"world_size": 2}, "--nproc 2"),
    ),
    Case(
        "a task of an array",
        {"JOB_ID": "77", "NSLOTS": "1", "SGE_TASK_ID": "3"},
        Found("local", {"run_id": ("77.3", "JOB_ID.SGE_TASK_ID")}),
    ),
]

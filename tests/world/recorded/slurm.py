"""Slurm.

Recorded from Slurm 22.05.8: `sbatch -N1 -n2`, `salloc -N2 -n4`.
"""

from tests.world.recorded import LAUNCH, Case, Found, Refused

BATCH = {
    "SLURM_JOB_ID": "1000",
    "SLURM_JOB_NODELIST": "node0",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_NTASKS": "2",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURM_GTIDS": "0",
    "SLURMD_NODENAME": "node0",
}
SALLOC = {
    "SLURM_JOB_ID": "1000",
    "SLURM_JOB_NODELIST": "node[0-1]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_NTASKS": "4",
    "SLURM_TASKS_PER_NODE": "3,1",
}
# Recorded from task 2 of `srun -N2 -n3` of Slurm 22.05.8.
STEP = {
    "SLURM_JOB_ID": "1000",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "node[0-1]",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
    "SLURM_JOB_NODELIST": "node[0-1]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_NTASKS": "3",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURMD_NODENAME": "node1",
    "SLURM_GTIDS": "2",
    "SLURM_KILL_BAD_EXIT": "1",
}
IN_STEP = {"rank": (2, "SLURM_PROCID"), "world_size": (3, "SLURM_STEP_NUM_TASKS")}
ONE_NODE_STEP = {
    **STEP,
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_NODELIST": "node1",
    "SLURM_STEP_TASKS_PER_NODE": "1",
    "SLURM_PROCID": "0",
    "SLURM_NODEID": "0",
    "SLURM_GTIDS": "0",
}
CASES = [
    Case(
        "a batch script on one node",
        BATCH,
        Found("local", {"world_size": 2, "run_id": ("1000", "SLURM_JOB_ID")}, "--nproc 2"),
    ),
    Case("a batch script with two tasks", BATCH, Refused(f"srun is missing; type srun {LAUNCH}")),
    Case(
        "salloc on two nodes",
        SALLOC,
        Refused(
            f"type srun --nodes=2 --ntasks=2 --ntasks-per-node=1 {LAUNCH} --nproc=2", "--nproc 2"
        ),
    ),
    Case(
        "by hand in salloc on two nodes, where the others may know no job",
        SALLOC,
        Found(
            "node",
            {"rank": 2, "world_size": 4, "node_rank": (1, "--node-rank"), "master_port": 0},
            "--nproc 2 --nnodes 2 --node-rank 1 --master-addr node0",
        ),
    ),
    Case(
        "a step",
        STEP,
        Found(
            "task",
            {
                **IN_STEP,
                "local_rank": (0, "SLURM_LOCALID"),
                "local_world_size": (1, "number of SLURM_GTIDS=2"),
                "node_rank": (1, "SLURM_NODEID"),
                "nnodes": (2, "SLURM_STEP_NUM_NODES"),
                "master_addr": ("node0", "first host of SLURM_STEP_NODELIST=node[0-1]"),
                "master_port": (22011, "computed from SLURM_JOB_ID.SLURM_STEP_ID=1000.0"),
                "run_id": ("1000.0", "SLURM_JOB_ID.SLURM_STEP_ID"),
            },
        ),
    ),
    Case(
        "a name of the fast network",
        STEP,
        Found("task", {"master_addr": "node0i"}, "--master-suffix i"),
    ),
    Case(
        "a launcher on the node that has one task of three",
        STEP,
        Refused(f"srun --nodes=2 --ntasks=2 --ntasks-per-node=1 {LAUNCH} --nproc=2", "--nproc 2"),
    ),
    Case(
        "a step for each node of a job by hand",
        {**ONE_NODE_STEP, "SLURM_STEP_RESV_PORTS": "12000-12003"},
        Found(
            "node",
            {"rank": 2, "world_size": 4, "master_port": 0, "run_id": "none"},
            "--nproc 2 --nnodes 2 --node-rank 1 --master-addr node0",
        ),
    ),
    Case(
        "a step for each node of a job by hand, and no host of rank 0",
        ONE_NODE_STEP,
        Refused("type --master-addr HOST", "--nproc 2 --nnodes 2 --node-rank 1"),
    ),
    Case(
        "the first of the reserved ports",
        {**STEP, "SLURM_STEP_RESV_PORTS": "12000-12003"},
        Found("task", {"master_port": (12000, "SLURM_STEP_RESV_PORTS")}),
    ),
    Case(
        "reserved ports that are none",
        {**STEP, "SLURM_STEP_RESV_PORTS": "99999"},
        Refused("SLURM_STEP_RESV_PORTS='99999' is not a port; type --master-port N"),
    ),
    Case(
        "a host list that is none",
        {**STEP, "SLURM_STEP_NODELIST": "node[0-"},
        Refused("this [ is not closed"),
    ),
]

"""All that Slurm 22.05.8 gave to processes, but for paths, users and addresses: data.

Recorded from `srun -N2 -n3`, `srun -N2 --ntasks-per-node=1`, and batch scripts and shells of
`-N2 -n3` and `-N1 -n2`.
"""

from tests.world.slurm_jobs import Environ, Job, Task

JOB = {
    "SLURM_CLUSTER_NAME": "test",
    "SLURM_JOB_ID": "7",
    "SLURM_JOBID": "7",
    "SLURM_JOB_NAME": "python",
    "SLURM_JOB_PARTITION": "all",
    "SLURM_JOB_UID": "0",
    "SLURM_JOB_GID": "0",
    "SLURM_JOB_USER": "root",
    "SLURM_PRIO_PROCESS": "0",
    "SLURM_SUBMIT_HOST": "login",
}
STEP = {
    "SLURM_LAUNCH_NODE_IPADDR": "10.11.12.1",
    "SLURM_SRUN_COMM_HOST": "10.11.12.1",
    "SLURM_SRUN_COMM_PORT": "44941",
    "SLURM_STEP_LAUNCHER_PORT": "44941",
    "SLURM_STEP_ID": "3",
    "SLURM_STEPID": "3",
    "SLURM_UMASK": "0022",
    "SRUN_DEBUG": "3",
}


def of_a_job(nodes: int, tasks: int, tasks_per_node: str) -> Environ:
    nodelist = "node[0-1]" if nodes == 2 else "node0"
    return {
        **JOB,
        "SLURM_JOB_CPUS_PER_NODE": tasks_per_node,
        "SLURM_JOB_NODELIST": nodelist,
        "SLURM_JOB_NUM_NODES": str(nodes),
        "SLURM_NNODES": str(nodes),
        "SLURM_NODELIST": nodelist,
        "SLURM_NPROCS": str(tasks),
        "SLURM_NTASKS": str(tasks),
        "SLURM_TASKS_PER_NODE": tasks_per_node,
    }


def of_a_process(rank: int, local_rank: int, node: int, ranks: str) -> Environ:
    return {
        "SLURMD_NODENAME": f"node{node}",
        "SLURM_CPUS_ON_NODE": "2",
        "SLURM_GTIDS": ranks,
        "SLURM_LOCALID": str(local_rank),
        "SLURM_NODEID": str(node),
        "SLURM_PROCID": str(rank),
        "SLURM_TASK_PID": str(80 + rank),
        "SLURM_TOPOLOGY_ADDR": f"node{node}",
        "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
    }


def step(tasks_per_node: str, ranks: list[tuple[int, int, int, str]]) -> list[Environ]:
    """The environments of a step's tasks."""
    n = str(len(ranks))
    sizes = {"SLURM_STEP_NUM_TASKS": n, "SLURM_STEP_NUM_NODES": "2"}
    sizes |= {"SLURM_STEP_NODELIST": "node[0-1]", "SLURM_STEP_TASKS_PER_NODE": tasks_per_node}
    job = of_a_job(2, len(ranks), tasks_per_node)
    return [{**job, **STEP, **sizes, **of_a_process(*rank)} for rank in ranks]


TASKS = step("2,1", [(0, 0, 0, "0,1"), (1, 1, 0, "0,1"), (2, 0, 1, "2")])
LAUNCHERS = step("1(x2)", [(0, 0, 0, "0"), (1, 0, 1, "1")])
OF_A_SCRIPT = {
    "SLURM_DISTRIBUTION": "block",
    "SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0": "2,1",
    "SLURM_NODE_ALIASES": "(null)",
}
PROCESSES = {
    "tasks": (TASKS, ""),
    "tasks of a batch script": ([{**each, **OF_A_SCRIPT} for each in TASKS], ""),
    "launchers": ([{**each, "SLURM_NTASKS_PER_NODE": "1"} for each in LAUNCHERS], "--nproc 2"),
    "batch script": ([{**of_a_job(2, 3, "2,1"), **of_a_process(0, 0, 0, "0")}], ""),
    "batch script on one node": (
        [{**of_a_job(1, 2, "2"), **of_a_process(0, 0, 0, "0")}],
        "--nproc 2",
    ),
    "shell": ([{**of_a_job(2, 4, "3,1"), "SLURM_NODE_ALIASES": "(null)"}], "--nproc 2"),
    "shell on one node": ([{**of_a_job(1, 2, "2"), "SLURM_NODE_ALIASES": "(null)"}], ""),
}


def job(name: str) -> Job:
    """These processes as a job, of which no parent shows anything."""
    environs, flags = PROCESSES[name]
    hosts = [environ.get("SLURMD_NODENAME", "node0") for environ in environs]
    tasks = [Task(environ, None, host, 1) for environ, host in zip(environs, hosts, strict=True)]
    return Job(tasks, flags.split(), None, name)

"""The worker's environment: the inherited one, torchrun's contract, and what the user's flags add.

Source of the names: torch.distributed.run's documentation, "Environment Variables"; NODE_RANK is
what Composer and Lightning read.
"""

from __future__ import annotations

from spawnlaunch import reading
from spawnlaunch.node import visible
from spawnlaunch.world import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from spawnlaunch.run import launches

MARK = "SPAWNLAUNCH_WORKER"  # the run's unique id, a dot, and the rank: whose child a process is
COLUMNS = "SPAWNLAUNCH_TERMINAL_COLUMNS"  # where stdout reaches a terminal through the launcher
STACK_SIGNAL = "SPAWNLAUNCH_STACK_SIGNAL"  # a number: asks for the stacks of all threads, on stderr
NODE_CPUS = "SPAWNLAUNCH_NODE_CPUS"  # of all ranks here: for what one does while the others wait
# What the launchers of several nodes know each other by; no worker needs it.
TOKENS = ("SPAWNLAUNCH_TOKEN", "SPAWNLAUNCH_TOKEN_FILE")
TASK_PID = "SLURM_TASK_PID"
ITS_OWN = "its own pid"  # what stands there until the worker has one
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"  # of a worker its own; of ours the user's
# The masks that Slurm gave the launcher; a worker's is another.
OF_THE_MASK = ("SLURM_CPU_BIND", "SLURM_CPU_BIND_LIST", "SLURM_CPU_BIND_TYPE")
# What a task has of the node's, where the launcher was given all of it; how else it says so.
SHARED = ("SLURM_CPUS_PER_TASK", "SLURM_GPUS_PER_TASK")
SHARED_IN_WORDS = ("SLURM_TRES_PER_TASK", "SLURM_TRES_PER_TASK_CPU")


def of_worker(launch: launches.Launch, i: int, own: Mapping[str, object]) -> dict[str, str]:
    """The complete environment of worker `i` of this launcher, with `own` for it alone.

    The user's own variables win, except the rank variables of an outer launcher. What is not known
    (None) is not set, nor inherited.
    """
    request, world, environ = launch.request, launch.resolution.world, launch.environ
    rank = world.rank + i
    ours: dict[str, object] = {
        "RANK": rank,
        "WORLD_SIZE": world.world_size,
        "LOCAL_RANK": world.local_rank + i,
        "LOCAL_WORLD_SIZE": world.local_world_size,
        "NODE_RANK": world.node_rank,
        "GROUP_RANK": world.node_rank,
        "GROUP_WORLD_SIZE": world.nnodes,
        "ROLE_RANK": rank if world.role_rank is None else world.role_rank + i,
        "ROLE_WORLD_SIZE": world.role_world_size or world.world_size,
        "MASTER_ADDR": world.master_addr,
        "MASTER_PORT": world.master_port,
        "TORCHELASTIC_RUN_ID": world.run_id,
        # True would tell rank 0 that another process listens at MASTER_PORT already.
        "TORCHELASTIC_USE_AGENT_STORE": False,
        "ROLE_NAME": request.role,
        **own,
    }
    of_slurm = launch.resolution.environ
    if request.rewrite_slurm_env and of_slurm.get("SLURM_JOB_ID") and not world.is_task:
        ours |= _as_task_of_slurm(world, i, of_slurm)
    if request.virtual_local_rank:
        ours |= _virtual_local_rank(launch, i)
    unless_set = {
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": 1,
        "OMP_NUM_THREADS": launch.plan.bindings[i].threads,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        **launch.resolution.exports,
    }
    merged = {**unless_set, **environ, **ours}
    return {name: str(value) for name, value in merged.items() if value is not None}


def changes(environment: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a worker that its launcher did not inherit with the same value."""
    return {name: value for name, value in environment.items() if environ.get(name) != value}


def _virtual_local_rank(launch: launches.Launch, i: int) -> dict[str, object]:
    """torchrun's meaning: LOCAL_RANK=0, and this worker's entry of the parent's visible devices.

    Rank r uses the r-th device and around again, as its CPUs do (`Visible.device_of`). Where the
    resource manager shows this task one device only, that one stays.
    """
    world, environ = launch.resolution.world, launch.environ
    index = world.local_rank + i
    mask = next((name for name in visible.DEVICE_LISTS if environ.get(name)), None)
    if mask is None:
        used = {binding.device for binding in launch.plan.bindings} - {None}
        shared = not world.is_task and len(used)  # a task's plan is of its own device only
        return {"LOCAL_RANK": 0, visible.DEVICE_LISTS[0]: index % shared if shared else index}
    entries = environ[mask].split(",")
    if len(entries) == 1:
        return {"LOCAL_RANK": 0}
    return {"LOCAL_RANK": 0, mask: entries[index % len(entries)].strip()}


def _as_task_of_slurm(
    world: identity.World, i: int, environ: Mapping[str, str]
) -> dict[str, object]:
    """--rewrite-slurm-env: Slurm's variables as worker `i` would have them as a task of srun.

    They are those of srun(1), "OUTPUT ENVIRONMENT VARIABLES", that differ between a launcher's one
    task and as many tasks as it has workers. None: it has none of that name.
    """
    first, n = world.rank, world.local_world_size
    per_node = f"{n}(x{world.nnodes})" if world.nnodes != 1 else str(n)
    ours: dict[str, object] = {
        "SLURM_PROCID": first + i,
        "SLURM_LOCALID": i,
        "SLURM_NTASKS": world.world_size,
        "SLURM_NPROCS": world.world_size,
        "SLURM_STEP_NUM_TASKS": world.world_size,
        "SLURM_NTASKS_PER_NODE": n,
        "SLURM_TASKS_PER_NODE": per_node,
        "SLURM_STEP_TASKS_PER_NODE": per_node,
        "SLURM_GTIDS": ",".join(map(str, range(first, first + n))),
    }
    others: dict[str, object] = {
        TASK_PID: ITS_OWN,
        "SLURM_DISTRIBUTION": "block",
        **dict.fromkeys((*OF_THE_MASK, *SHARED_IN_WORDS)),
        **{name: _share(environ.get(name, ""), n) for name in SHARED},
    }
    if world.mode == identity.LOCAL:
        others |= _one_node(environ)
    return ours | {name: value for name, value in others.items() if name in environ}


def _share(count: str, n: int) -> int | None:
    """What each of `n` tasks would be given; None where that is no whole number."""
    return int(count) // n if reading.is_number(count) and int(count) >= n else None


def _one_node(environ: Mapping[str, str]) -> dict[str, object]:
    """A job on this machine alone, in a step that may have other nodes."""
    here = environ.get("SLURMD_NODENAME")
    alone = dict.fromkeys(("SLURM_NNODES", "SLURM_STEP_NUM_NODES"), 1)
    lists = dict.fromkeys(("SLURM_NODELIST", "SLURM_STEP_NODELIST"), here)
    return {"SLURM_NODEID": 0, **alone, **(lists if here else {})}

"""The worker's environment: the inherited one, torchrun's contract, and what the user's flags add.

Source of the names: torch.distributed.run's documentation, "Environment Variables"; NODE_RANK is
what Composer and Lightning read.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from spawnlaunch.run import launches

MARK = "SPAWNLAUNCH_WORKER"  # the run's unique id, a dot, and the rank: whose child a process is
COLUMNS = "SPAWNLAUNCH_TERMINAL_COLUMNS"  # where stdout reaches a terminal through the launcher
STACK_SIGNAL = "SPAWNLAUNCH_STACK_SIGNAL"  # a number: asks for the stacks of all threads, on stderr
WITNESS = "SPAWNLAUNCH_WITNESS"  # its own pid, which what it starts does not have: see witness/
NODE_CPUS = "SPAWNLAUNCH_NODE_CPUS"  # of all ranks here: for what one does while the others wait
# What the launchers of several nodes know each other by; no worker needs it.
TOKENS = ("SPAWNLAUNCH_TOKEN", "SPAWNLAUNCH_TOKEN_FILE")
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"  # of a worker its own; of ours the user's


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
    if request.rewrite_slurm_env and not world.is_task:
        as_task = next((each.as_task for each in launch.resolution.around if each.as_task), None)
        ours |= as_task(world, i, launch.resolution.environ) if as_task else {}
    if request.virtual_local_rank:  # torchrun's meaning
        ours |= {"LOCAL_RANK": 0, **launch.seen.alone(world.local_rank + i)}
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

"""The worker's environment: inherited variables, torchrun's contract, and the user's flags.

Source of the names: torch.distributed.run's documentation, "Environment Variables"; Composer and
Lightning read NODE_RANK.
"""

from __future__ import annotations

from collections.abc import Mapping

from spawnlaunch.base import reading
from spawnlaunch.workers import launches
from spawnlaunch.world import identity

MARK = identity.MARK  # the run's unique id, a dot, and the rank: the worker of a process
COLUMNS = "SPAWNLAUNCH_TERMINAL_COLUMNS"  # where stdout reaches a terminal through the launcher
STACK_SIGNAL = "SPAWNLAUNCH_STACK_SIGNAL"  # a number: asks for the stacks of all threads
STACK_FILES = "SPAWNLAUNCH_STACK_FILES"  # the directory of the files that they go to: see witness/
WITNESS = identity.WITNESS  # its own pid, which its children do not have: see witness/
TASK = "SPAWNLAUNCH_TASK"  # set where no launcher stays above it: then it names its own failure
TYPED = "SPAWNLAUNCH_TYPED"  # names of flags that bear on a rank's place, for checks of it
OMP = "OMP_NUM_THREADS"
# The secret by which launchers of several nodes know each other; no worker needs it.
TOKENS = ("SPAWNLAUNCH_TOKEN", "SPAWNLAUNCH_TOKEN_FILE")
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"  # of a worker its own; of ours the user's


def of_worker(launch: launches.Launch, i: int, of_rank: Mapping[str, object]) -> dict[str, str]:
    """The complete environment of worker `i` of this launcher, with `of_rank` for it alone.

    The user's own variables win, except the rank variables of an outer launcher. A variable with an
    unknown value (None) is neither set nor inherited.
    """
    request, world, environ = launch.request, launch.resolution.world, launch.environ
    rank = world.rank + i
    always_set: dict[str, object] = {
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
        **of_rank,
    }
    if not world.is_task:
        always_set |= _as_task(launch, i)
    if request.virtual_local_rank:  # torchrun's meaning
        always_set |= {"LOCAL_RANK": 0, **launch.seen.alone(world.local_rank + i)}
    unless_set = {
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": 1,
        OMP: launch.plan.bindings[i].threads,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        **launch.resolution.exports,
    }
    inherited = dict(environ)
    if not reading.are_threads(inherited.get(OMP, "")):  # of which OpenMP takes nothing
        inherited.pop(OMP, None)
    merged = {**unless_set, **inherited, **always_set}
    return {name: str(value) for name, value in merged.items() if value is not None}


def _as_task(launch: launches.Launch, i: int) -> dict[str, object]:
    """The manager's variables that worker `i` would have as a task of its own.

    A launcher in a step was given those of the step's one task on this node. In a shell of a job
    they belong to no task, so there the user has to ask for it.
    """
    request, resolution = launch.request, launch.resolution
    if request.rewrite_slurm_env:
        managers = resolution.mentioned
    else:
        managers = tuple(each for each in resolution.managers[:1] if each.kind == identity.TASKS)
    variables = (each.as_task(resolution.world, i) for each in managers)
    return {} if request.no_rewrite_slurm_env else next(filter(None, variables), {})


def changes(environment: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a worker that its launcher did not inherit with the same value."""
    return {name: value for name, value in environment.items() if environ.get(name) != value}

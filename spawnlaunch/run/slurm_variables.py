"""--rewrite-slurm-env: Slurm's variables as a worker would have them if it were a task of srun.

They are those of srun(1), "OUTPUT ENVIRONMENT VARIABLES", that differ between a launcher's one task
and as many tasks as it has workers.
"""

from __future__ import annotations

from spawnlaunch.reading import is_number
from spawnlaunch.run.environment import ITS_OWN, TASK_PID
from spawnlaunch.world import World

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# The masks that Slurm gave the launcher; a worker's is another.
OF_THE_MASK = ("SLURM_CPU_BIND", "SLURM_CPU_BIND_LIST", "SLURM_CPU_BIND_TYPE")
# What a task has of the node's, where the launcher was given all of it; how else it says so.
SHARED = ("SLURM_CPUS_PER_TASK", "SLURM_GPUS_PER_TASK")
SHARED_IN_WORDS = ("SLURM_TRES_PER_TASK", "SLURM_TRES_PER_TASK_CPU")


def rewritten(world: World, i: int, environ: Mapping[str, str]) -> dict[str, object]:
    """The variables of worker `i` of this launcher; None: it has none of that name."""
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
    if world.mode == "local":
        others |= _one_node(environ)
    return ours | {name: value for name, value in others.items() if name in environ}


def _share(count: str, n: int) -> int | None:
    """What each of `n` tasks would be given; None where that is no whole number."""
    return int(count) // n if is_number(count) and int(count) >= n else None


def _one_node(environ: Mapping[str, str]) -> dict[str, object]:
    """A job on this machine alone, in a step that may have other nodes."""
    here = environ.get("SLURMD_NODENAME")
    alone = dict.fromkeys(("SLURM_NNODES", "SLURM_STEP_NUM_NODES"), 1)
    lists = dict.fromkeys(("SLURM_NODELIST", "SLURM_STEP_NODELIST"), here)
    return {"SLURM_NODEID": 0, **alone, **(lists if here else {})}

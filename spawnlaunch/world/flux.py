"""Flux: flux run, one process per rank.

    FLUX_TASK_RANK=2  FLUX_JOB_SIZE=4  FLUX_TASK_LOCAL_ID=0  FLUX_JOB_NNODES=2  FLUX_JOB_ID=f4Zx3

It exports neither the tasks on this node nor the number of the node; on one node both are plain.
Source: flux-environment(7).
"""

from spawnlaunch.world.facts import Environ, Fact, number, text
from spawnlaunch.world.manager import TASKS, Manager

RANK = "FLUX_TASK_RANK"
SIZE = "FLUX_JOB_SIZE"
LOCAL_RANK = "FLUX_TASK_LOCAL_ID"
NODES = "FLUX_JOB_NNODES"
JOB = "FLUX_JOB_ID"


def local_world_size(environ: Environ) -> Fact | None:
    """Tasks on this node: all of them on one node; one each where there are as many nodes."""
    size, nodes = number(SIZE)(environ), number(NODES)(environ)
    if size is None or nodes is None:
        return None
    if nodes.value == 1:
        return Fact(size.value, f"{SIZE} on one node ({NODES})")
    if nodes.value == size.value:
        return Fact(1, f"{SIZE} and {NODES} are equal")
    return None


MANAGER = Manager(
    name="Flux",
    kind=TASKS,
    needs=(RANK, SIZE, LOCAL_RANK),
    table={
        "rank": (number(RANK),),
        "world_size": (number(SIZE),),
        "local_rank": (number(LOCAL_RANK),),
        "local_world_size": (local_world_size,),
        "nnodes": (number(NODES),),
        "job": (text(JOB),),
    },
    starter=lambda n, _, command: f"flux run --tasks-per-node={n} {command}",
)

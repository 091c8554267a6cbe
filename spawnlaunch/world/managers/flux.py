"""Flux: flux run, one process per rank.

    FLUX_TASK_RANK=2  FLUX_JOB_SIZE=4  FLUX_TASK_LOCAL_ID=0  FLUX_JOB_NNODES=2  FLUX_JOB_ID=f4Zx3

It exports neither the tasks on this node nor the number of the node; on one node both are plain.
Source: flux-environment(7).
"""

from __future__ import annotations

from spawnlaunch.world.model import TASKS, Environ, Fact, Manager, number

SIZE = "FLUX_JOB_SIZE"
NODES = "FLUX_JOB_NNODES"


def local_world_size(environ: Environ) -> Fact | None:
    """Tasks on this node: all of them on one node; one each where there are as many nodes."""
    size, nodes = number(SIZE, environ), number(NODES, environ)
    if size is None or nodes is None:
        return None
    if nodes.value == 1:
        return Fact(size.value, f"{SIZE} on one node ({NODES})")
    return Fact(1, f"{SIZE} and {NODES} are equal") if nodes.value == size.value else None


MANAGER = Manager(
    "Flux",
    TASKS,
    needs=("FLUX_TASK_RANK", SIZE, "FLUX_TASK_LOCAL_ID"),
    starter="flux run --tasks-per-node={n} {command}",
    rank="FLUX_TASK_RANK",
    world_size=SIZE,
    local_rank="FLUX_TASK_LOCAL_ID",
    local_world_size=local_world_size,
    nnodes=NODES,
    job="FLUX_JOB_ID",
)

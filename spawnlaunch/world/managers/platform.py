"""Platforms that export torch's own variables, whole, per pod or container.

    RANK=1  WORLD_SIZE=4  MASTER_ADDR=job-master-0  MASTER_PORT=23456

One process per rank; with --nproc there is one launcher per container, and RANK is the node's, as
torchrun's users write it there. The same four beside TORCHELASTIC_RUN_ID are what an outer launcher
left behind, and no platform's.
Source: torch.distributed, "Environment variable initialization"; Kubeflow's PyTorchJob.
"""

from __future__ import annotations

from spawnlaunch.world.model import TASKS, Environ, Fact, Manager

LOCAL_RANK = "LOCAL_RANK"
LOCAL_SIZE = "LOCAL_WORLD_SIZE"


def alone(value: int, environ: Environ) -> Fact | None:
    """What is not exported where there is one process per container."""
    if environ.get(LOCAL_RANK) or environ.get(LOCAL_SIZE):
        return None
    return Fact(value, f"one process per container ({LOCAL_RANK} is not set)")


MANAGER = Manager(
    "the platform (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT)",
    TASKS,
    needs=("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    unless=lambda environ: "TORCHELASTIC_RUN_ID" in environ,
    gives_ranks=True,
    rank="RANK",
    world_size="WORLD_SIZE",
    local_rank=(LOCAL_RANK, lambda environ: alone(0, environ)),
    local_world_size=(LOCAL_SIZE, lambda environ: alone(1, environ)),
    node_rank=("NODE_RANK", "GROUP_RANK"),
    master_addr="MASTER_ADDR",
    master_port="MASTER_PORT",
)

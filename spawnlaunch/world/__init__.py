"""Who am I among how many: rank, size, local rank, and where rank 0 listens."""

import os
from typing import NamedTuple

from spawnlaunch.world.ports import HeldPort, hold_free_port

LOOPBACK = "127.0.0.1"


class World(NamedTuple):
    """The place of this launcher's workers in the job.

    `rank` and `local_rank` are those of its first worker; worker i has `rank + i`.
    """

    mode: str  # "task", "node" or "local"
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    nnodes: int
    master_addr: str
    master_port: int
    run_id: str


def resolve(nproc: int) -> tuple[World, HeldPort]:
    """The world of `nproc` workers on this machine alone, and the port that it holds."""
    held = hold_free_port()
    world = World(
        mode="local",
        rank=0,
        world_size=nproc,
        local_rank=0,
        local_world_size=nproc,
        node_rank=0,
        nnodes=1,
        master_addr=LOOPBACK,
        master_port=held.port,
        run_id=f"local-{os.getpid()}-{held.port}",
    )
    return world, held

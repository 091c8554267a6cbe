"""Platforms that export torch's own variables, whole, per pod or container.

    RANK=1  WORLD_SIZE=4  MASTER_ADDR=job-master-0  MASTER_PORT=23456

One process per rank; with --nproc there is one launcher per container, and RANK is the node's, as
torchrun's users write it there. The same four beside TORCHELASTIC_RUN_ID are what an outer launcher
left behind, and no platform's.
Source: torch.distributed, "Environment variable initialization"; Kubeflow's PyTorchJob.
"""

from spawnlaunch.world.facts import Environ, Fact, Reader, number, port, text
from spawnlaunch.world.manager import TASKS, Manager

RANK = "RANK"
SIZE = "WORLD_SIZE"
LOCAL_RANK = "LOCAL_RANK"
LOCAL_SIZE = "LOCAL_WORLD_SIZE"
ADDR = "MASTER_ADDR"
PORT = "MASTER_PORT"
OUTER_LAUNCHER = "TORCHELASTIC_RUN_ID"


def alone(value: int) -> Reader:
    """A reader for what is not exported: one process per container."""

    def read(environ: Environ) -> Fact | None:
        if environ.get(LOCAL_RANK) or environ.get(LOCAL_SIZE):
            return None
        return Fact(value, f"one process per container ({LOCAL_RANK} is not set)")

    return read


MANAGER = Manager(
    name="the platform (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT)",
    kind=TASKS,
    needs=(RANK, SIZE, ADDR, PORT),
    unless=lambda environ: OUTER_LAUNCHER in environ,
    gives_ranks=True,
    table={
        "rank": (number(RANK),),
        "world_size": (number(SIZE),),
        "local_rank": (number(LOCAL_RANK), alone(0)),
        "local_world_size": (number(LOCAL_SIZE), alone(1)),
        "node_rank": (number("NODE_RANK"), number("GROUP_RANK")),
        "master_addr": (text(ADDR),),
        "master_port": (port(PORT),),
    },
)

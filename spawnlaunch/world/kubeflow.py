"""Kubeflow Trainer: one launcher per pod, told by torchrun's own variables.

    PET_NNODES=2  PET_NPROC_PER_NODE=4  PET_NODE_RANK=1
    PET_MASTER_ADDR=job-node-0-0.job  PET_MASTER_PORT=29400

As torchrun's flags, PET_NNODES may be MIN:MAX, and PET_NPROC_PER_NODE auto, gpu or cpu.
Source: kubeflow/trainer pkg/constants/constants.go; torch/distributed/argparse_util.py.
"""

from __future__ import annotations

from spawnlaunch import values
from spawnlaunch.errors import UsageError
from spawnlaunch.world.facts import Environ, Fact, Reader, number, port, text
from spawnlaunch.world.manager import NODES, Manager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

NNODES = "PET_NNODES"
NPROC = "PET_NPROC_PER_NODE"
NODE_RANK = "PET_NODE_RANK"
ADDR = "PET_MASTER_ADDR"
PORT = "PET_MASTER_PORT"


def flag(name: str, read: Callable[[str], int | str]) -> Reader:
    """A reader of a variable that has the values of one of our flags."""

    def reader(environ: Environ) -> Fact | None:
        if not environ.get(name):
            return None
        try:
            return Fact(read(environ[name]), name)
        except ValueError as error:
            raise UsageError(f"{name}: {error}") from None

    return reader


MANAGER = Manager(
    name="Kubeflow",
    kind=NODES,
    needs=(NNODES, NODE_RANK, ADDR, PORT),
    table={
        "node_rank": (number(NODE_RANK),),
        "nnodes": (flag(NNODES, values.nnodes),),
        "nproc": (flag(NPROC, values.nproc),),
        "master_addr": (text(ADDR),),
        "master_port": (port(PORT),),
    },
)

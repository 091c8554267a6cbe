"""Kubeflow Trainer: one launcher per pod, told by torchrun's own variables.

    PET_NNODES=2  PET_NPROC_PER_NODE=4  PET_NODE_RANK=1
    PET_MASTER_ADDR=job-node-0-0.job  PET_MASTER_PORT=29400

As torchrun's flags, PET_NNODES may be MIN:MAX, and PET_NPROC_PER_NODE auto, gpu or cpu.
Source: kubeflow/trainer pkg/constants/constants.go; torch/distributed/argparse_util.py.
"""

from __future__ import annotations

from spawnlaunch import values
from spawnlaunch.errors import UsageError
from spawnlaunch.world.model import NODES, Environ, Fact, Manager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


NNODES = "PET_NNODES"
NPROC = "PET_NPROC_PER_NODE"


def flag(name: str, read: Callable[[str], int | str], environ: Environ) -> Fact | None:
    """What a variable says that has the values of one of our flags."""
    try:
        return Fact(read(environ[name]), name) if environ.get(name) else None
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None


MANAGER = Manager(
    "Kubeflow",
    NODES,
    needs=(NNODES, "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"),
    node_rank="PET_NODE_RANK",
    nnodes=lambda environ: flag(NNODES, lambda text: values.nnodes(text).most, environ),
    least_nodes=lambda environ: flag(NNODES, lambda text: values.nnodes(text).least, environ),
    nproc=lambda environ: flag(NPROC, values.nproc, environ),
    master_addr="PET_MASTER_ADDR",
    master_port="PET_MASTER_PORT",
)

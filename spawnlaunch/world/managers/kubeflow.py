"""Kubeflow Trainer: one launcher per pod, with torchrun's own variables.

    PET_NNODES=2  PET_NPROC_PER_NODE=4  PET_NODE_RANK=1
    PET_MASTER_ADDR=job-node-0-0.job  PET_MASTER_PORT=29400

As torchrun's flags, PET_NNODES may be MIN:MAX, and PET_NPROC_PER_NODE auto, gpu or cpu.
Source: kubeflow/trainer pkg/constants/constants.go; torch/distributed/argparse_util.py.
"""

from __future__ import annotations

from spawnlaunch.base import errors
from spawnlaunch.cli import values
from spawnlaunch.world import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

NNODES = "PET_NNODES"


def _flag(
    name: str, read: Callable[[str], int | str], environ: identity.Environ
) -> identity.Fact | None:
    """Read a variable with the reader of one of spawnlaunch's flags. Raises UsageError."""
    try:
        return identity.Fact(read(environ[name]), name) if environ.get(name) else None
    except ValueError as error:
        raise errors.UsageError(f"{name}: {error}") from None


class Kubeflow(identity.Manager):
    """A pod of Kubeflow Trainer."""

    name = "Kubeflow"
    kind = identity.NODES
    needs = (NNODES, "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")

    def node_rank(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.number("PET_NODE_RANK", environ)

    def nnodes(self, environ: identity.Environ) -> identity.Fact | None:
        return _flag(NNODES, lambda text: values.nnodes(text).most, environ)

    def least_nodes(self, environ: identity.Environ) -> identity.Fact | None:
        return _flag(NNODES, lambda text: values.nnodes(text).least, environ)

    def nproc(self, environ: identity.Environ) -> identity.Fact | None:
        return _flag(values.PET_NPROC, values.nproc, environ)

    def master_addr(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.text("PET_MASTER_ADDR", environ)

    def master_port(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.number("PET_MASTER_PORT", environ, values.MAX_PORT)


KUBEFLOW = Kubeflow()

"""Platforms that export torch's own variables, all four, per pod or container.

    RANK=1  WORLD_SIZE=4  MASTER_ADDR=job-master-0  MASTER_PORT=23456

One process per rank; with --nproc there is one launcher per container, and RANK is the node's rank,
as users of torchrun pass it on there. Where TORCHELASTIC_RUN_ID is set as well, an outer launcher
left the four, and no platform set them.
Source: torch.distributed, "Environment variable initialization"; Kubeflow's PyTorchJob.
"""

from __future__ import annotations

from spawnlaunch.cli import values
from spawnlaunch.world import identity

LOCAL_RANK = "LOCAL_RANK"
LOCAL_SIZE = "LOCAL_WORLD_SIZE"


def _if_alone(value: int, environ: identity.Environ) -> identity.Fact | None:
    """Return `value` where there is one process per container, which has no local variables."""
    if environ.get(LOCAL_RANK) or environ.get(LOCAL_SIZE):
        return None
    return identity.Fact(value, f"one process per container ({LOCAL_RANK} is not set)")


class Platform(identity.Manager):
    """A container with torch's own variables."""

    name = "the platform (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT)"
    kind = identity.TASKS
    needs = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    gives_ranks = True

    def is_present(self, environ: identity.Environ) -> bool:
        return super().is_present(environ) and identity.RUN_ID not in environ

    def rank(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.number("RANK", environ)

    def world_size(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.number("WORLD_SIZE", environ)

    def local_rank(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.number(LOCAL_RANK, environ) or _if_alone(0, environ)

    def local_world_size(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.number(LOCAL_SIZE, environ) or _if_alone(1, environ)

    def node_rank(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.numbers(("NODE_RANK", "GROUP_RANK"), environ)

    def master_addr(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.text("MASTER_ADDR", environ)

    def master_port(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.number("MASTER_PORT", environ, values.MAX_PORT)


PLATFORM = Platform()

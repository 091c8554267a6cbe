"""Flux: flux run, one process per rank.

    FLUX_TASK_RANK=2  FLUX_JOB_SIZE=4  FLUX_TASK_LOCAL_ID=0  FLUX_JOB_NNODES=2  FLUX_JOB_ID=f4Zx3

It exports neither the number of tasks on this node nor the node's rank; on one node both are known.
Source: flux-environment(7).
"""

from __future__ import annotations

from spawnlaunch.world import identity

SIZE = "FLUX_JOB_SIZE"
NODES = "FLUX_JOB_NNODES"


class Flux(identity.Manager):
    """A task of `flux run`."""

    name = "Flux"
    kind = identity.TASKS
    needs = ("FLUX_TASK_RANK", SIZE, "FLUX_TASK_LOCAL_ID")

    def rank(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.number("FLUX_TASK_RANK", environ)

    def world_size(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.number(SIZE, environ)

    def local_rank(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.number("FLUX_TASK_LOCAL_ID", environ)

    def local_world_size(self, environ: identity.Environ) -> identity.Fact | None:
        """The number of tasks on this node: all on one node, or one where each node has one."""
        size, nodes = self.world_size(environ), self.nnodes(environ)
        if size is None or nodes is None:
            return None
        if nodes.value == 1:
            return identity.Fact(size.value, f"{SIZE} on one node ({NODES})")
        are_equal = identity.Fact(1, f"{SIZE} and {NODES} are equal")
        return are_equal if nodes.value == size.value else None

    def nnodes(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.number(NODES, environ)

    def job(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.text("FLUX_JOB_ID", environ)

    def tasks_line(self, environ: identity.Environ, command: str, n: int) -> str:
        nodes = self.nnodes(environ)
        where = f"-N{nodes.value if nodes else 'N'} --exclusive --tasks-per-node={n}"
        return f"flux run {where} {command}"


FLUX = Flux()

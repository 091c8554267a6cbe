"""HPE PALS: mpiexec on Aurora and Polaris, one process per rank.

    PALS_RANKID=2  PALS_LOCAL_RANKID=0  PALS_LOCAL_SIZE=2  PALS_NODEID=1  PALS_APID=<uuid>
    PMI_SIZE=4 (with PMI) and no size of its own

Under Slurm the cray_shasta plugin sets PALS_* as well; so Slurm comes before it.
Source: flux-framework/flux-coral2 src/shell/plugins/cray_pals.c; the user guides of ALCF.
"""

from __future__ import annotations

from spawnlaunch.world import identity


class Pals(identity.Manager):
    """A task of PALS' mpiexec."""

    name = "HPE PALS"
    kind = identity.TASKS
    needs = ("PALS_RANKID", "PALS_LOCAL_RANKID")

    def rank(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.numbers(("PALS_RANKID", "PMI_RANK"), environ)

    def world_size(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.number("PMI_SIZE", environ)

    def local_rank(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.numbers(("PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"), environ)

    def local_world_size(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.numbers(("PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"), environ)

    def node_rank(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.number("PALS_NODEID", environ)

    def job(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.text("PALS_APID", environ)

    def tasks_line(self, environ: identity.Environ, command: str, n: int) -> str:
        return f"mpiexec --ppn {n} {command}"


PALS = Pals()

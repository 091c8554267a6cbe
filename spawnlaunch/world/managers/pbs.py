"""PBS without an MPI: a list of hosts, and a process on one of them.

    PBS_JOBID=123.server  PBS_NODEFILE=/var/spool/pbs/aux/123.server: a line per slot

Source: qsub(1B), "Environment Variables"; pbsdsh(1B).
"""

from __future__ import annotations

from spawnlaunch.world import identity
from spawnlaunch.world.managers import hostfiles

NODEFILE = "PBS_NODEFILE"


class Pbs(identity.Manager):
    """A process on a host of a PBS job."""

    name = "PBS"
    needs = ("PBS_JOBID", NODEFILE)
    why_no_nnodes = f"{NODEFILE} cannot be read here"

    def hosts(self, environ: identity.Environ) -> identity.Fact | None:
        return hostfiles.listed_hosts(NODEFILE, environ)

    def job(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.text("PBS_JOBID", environ)


PBS = Pbs()

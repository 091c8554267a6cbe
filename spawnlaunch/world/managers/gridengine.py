"""Grid Engine: a list of hosts, and a process on the first of them.

    JOB_ID=77  NSLOTS=8  NHOSTS=2  PE_HOSTFILE=/path: "host slots queue processors" a line
    SGE_TASK_ID=3, or undefined where the job is no array

NSLOTS counts slots, which a site may mean as cores or as anything else: it is never a world size.
Without a parallel environment there is no PE_HOSTFILE, and the job has one host.
Source: qsub(1), "Environmental variables"; sge_pe(5), "$pe_hostfile".
"""

from __future__ import annotations

from spawnlaunch.world import identity
from spawnlaunch.world.managers import hostfiles

HOSTFILE = "PE_HOSTFILE"


class GridEngine(identity.Manager):
    """A process on a host of a Grid Engine job."""

    name = "Grid Engine"
    needs = ("JOB_ID", "NSLOTS")
    why_no_nnodes = f"{HOSTFILE} cannot be read here, and NHOSTS is not set"

    def hosts(self, environ: identity.Environ) -> identity.Fact | None:
        return hostfiles.listed_hosts(HOSTFILE, environ)

    def nnodes(self, environ: identity.Environ) -> identity.Fact | None:
        alone = identity.Fact(1, f"no parallel environment ({HOSTFILE})")
        return identity.number("NHOSTS", environ) or (None if environ.get(HOSTFILE) else alone)

    def job(self, environ: identity.Environ) -> identity.Fact | None:
        """The job's number, with the task's in an array: all tasks of an array share JOB_ID."""
        task = environ.get("SGE_TASK_ID", "")
        if task in ("", "undefined"):
            return identity.Fact(environ["JOB_ID"], "JOB_ID")
        return identity.Fact(f"{environ['JOB_ID']}.{task}", "JOB_ID.SGE_TASK_ID")


GRIDENGINE = GridEngine()

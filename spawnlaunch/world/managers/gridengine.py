"""Grid Engine: a list of hosts, and a process on the first of them.

    JOB_ID=77  NSLOTS=8  NHOSTS=2  PE_HOSTFILE=/path: "host slots queue processors" a line
    SGE_TASK_ID=3, or undefined where the job is no array

NSLOTS counts slots, which a site may mean as cores or as anything else: it is never a world size.
Source: qsub(1), "Environmental variables"; sge_pe(5), "$pe_hostfile".
"""

from __future__ import annotations

from spawnlaunch.world.lists import unique_hosts
from spawnlaunch.world.model import HOSTS, Environ, Fact, Manager

HOSTFILE = "PE_HOSTFILE"


def hosts(environ: Environ) -> Fact | None:
    """The job's hosts, each once; without a parallel environment there is no such file."""
    names = unique_hosts(environ.get(HOSTFILE))
    return Fact(names, HOSTFILE) if names else None


def one_host(environ: Environ) -> Fact | None:
    """Without a parallel environment a job has one host."""
    return None if environ.get(HOSTFILE) else Fact(1, f"no parallel environment ({HOSTFILE})")


def job(environ: Environ) -> Fact:
    """The tasks of an array have one job's number."""
    task = environ.get("SGE_TASK_ID", "")
    if task in ("", "undefined"):
        return Fact(environ["JOB_ID"], "JOB_ID")
    return Fact(f"{environ['JOB_ID']}.{task}", "JOB_ID.SGE_TASK_ID")


MANAGER = Manager(
    "Grid Engine",
    HOSTS,
    needs=("JOB_ID", "NSLOTS"),
    hosts=hosts,
    nnodes=("NHOSTS", one_host),
    job=job,
    silent={"nnodes": f"{HOSTFILE} cannot be read here, and NHOSTS is not set"},
)

"""PBS without an MPI: a list of hosts, and a process on one of them.

    PBS_JOBID=123.server  PBS_NODEFILE=/var/spool/pbs/aux/123.server: a line per slot, hosts repeat

Source: qsub(1B), "Environment Variables"; pbsdsh(1B).
"""

from __future__ import annotations

from spawnlaunch.world.lists import unique_hosts
from spawnlaunch.world.model import HOSTS, Environ, Fact, Manager

NODEFILE = "PBS_NODEFILE"


def hosts(environ: Environ) -> Fact | None:
    """The job's hosts, each once."""
    names = unique_hosts(environ.get(NODEFILE))
    return Fact(names, NODEFILE) if names else None


MANAGER = Manager(
    "PBS",
    HOSTS,
    needs=("PBS_JOBID", NODEFILE),
    hosts=hosts,
    job="PBS_JOBID",
    silent={"nnodes": f"{NODEFILE} cannot be read here"},
)

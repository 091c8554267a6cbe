"""PBS without an MPI: a list of hosts, and a process on one of them.

    PBS_JOBID=123.server  PBS_NODEFILE=/var/spool/pbs/aux/123.server: a line per slot, hosts repeat

Source: qsub(1B), "Environment Variables"; pbsdsh(1B).
"""

from spawnlaunch.world.facts import Environ, Fact, text
from spawnlaunch.world.lists import unique_hosts
from spawnlaunch.world.manager import HOSTS, Manager

JOB = "PBS_JOBID"
NODEFILE = "PBS_NODEFILE"


def hosts(environ: Environ) -> Fact | None:
    """The job's hosts, each once."""
    names = unique_hosts(environ.get(NODEFILE, ""))
    return Fact(names, NODEFILE) if names else None


MANAGER = Manager(
    name="PBS",
    kind=HOSTS,
    needs=(JOB, NODEFILE),
    table={"hosts": (hosts,), "job": (text(JOB),)},
    silent={"nnodes": f"{NODEFILE} cannot be read here"},
)

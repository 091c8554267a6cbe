"""Grid Engine: a list of hosts, and a process on the first of them.

    JOB_ID=77  NSLOTS=8  NHOSTS=2  PE_HOSTFILE=/path: "host slots queue processors" a line

NSLOTS counts slots, which a site may mean as cores or as anything else: it is never a world size.
Source: qsub(1), "Environmental variables"; sge_pe(5), "$pe_hostfile".
"""

from spawnlaunch.world.facts import Environ, Fact, text
from spawnlaunch.world.hostfile import unique_hosts
from spawnlaunch.world.manager import HOSTS, Manager

JOB = "JOB_ID"
SLOTS = "NSLOTS"
HOSTFILE = "PE_HOSTFILE"


def hosts(environ: Environ) -> Fact | None:
    """The job's hosts, each once; without a parallel environment there is no such file."""
    names = unique_hosts(environ.get(HOSTFILE, ""))
    return Fact(names, HOSTFILE) if names else None


MANAGER = Manager(
    name="Grid Engine",
    kind=HOSTS,
    needs=(JOB, SLOTS),
    table={"hosts": (hosts,), "job": (text(JOB),)},
)

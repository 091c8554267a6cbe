"""LSF with jsrun (Summit, Lassen): one process per rank.

    JSM_NAMESPACE_RANK=2  JSM_NAMESPACE_SIZE=4
    JSM_NAMESPACE_LOCAL_RANK=0  JSM_NAMESPACE_LOCAL_SIZE=2
    LSB_JOBID=1234  LSB_DJOB_RANKFILE=/path: a host per slot, the launch node first

Source: Lightning's LSF environment; hydra's lsf_query_node_list.c; IBM Spectrum LSF's reference of
environment variables. A job may run jsrun many times; JSM_NAMESPACE_ID tells them apart where set.
"""

from spawnlaunch.world.facts import Environ, Fact, number, text
from spawnlaunch.world.hostfile import unique_hosts
from spawnlaunch.world.manager import TASKS, Manager

RANK = "JSM_NAMESPACE_RANK"
SIZE = "JSM_NAMESPACE_SIZE"
LOCAL_RANK = "JSM_NAMESPACE_LOCAL_RANK"
LOCAL_SIZE = "JSM_NAMESPACE_LOCAL_SIZE"
JOB = "LSB_JOBID"
RANKFILE = "LSB_DJOB_RANKFILE"


def rank_0_host(environ: Environ) -> Fact | None:
    """The first compute host: the first line of the rank file is the launch node."""
    hosts = unique_hosts(environ.get(RANKFILE, ""))
    return Fact(hosts[1], f"second host of {RANKFILE}") if len(hosts) > 1 else None


MANAGER = Manager(
    name="LSF jsrun",
    kind=TASKS,
    needs=(RANK, SIZE, LOCAL_RANK),
    table={
        "rank": (number(RANK),),
        "world_size": (number(SIZE),),
        "local_rank": (number(LOCAL_RANK),),
        "local_world_size": (number(LOCAL_SIZE),),
        "rank_0_host": (rank_0_host,),
        "node_0_host": (rank_0_host,),
        "job": (text(JOB),),
    },
)

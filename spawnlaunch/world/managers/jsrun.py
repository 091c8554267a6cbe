"""LSF with jsrun (Summit, Lassen): one process per rank.

    JSM_NAMESPACE_RANK=2  JSM_NAMESPACE_SIZE=4
    JSM_NAMESPACE_LOCAL_RANK=0  JSM_NAMESPACE_LOCAL_SIZE=2
    LSB_JOBID=1234  LSB_DJOB_RANKFILE=/path: a host per slot, the launch node first

A job may run jsrun many times, each on some of its hosts; JSM_NAMESPACE_ID tells them apart where
it is set.
Source: Lightning's LSF environment; hydra's lsf_query_node_list.c; IBM Spectrum LSF's reference of
environment variables.
"""

from __future__ import annotations

from spawnlaunch.world.lists import unique_hosts
from spawnlaunch.world.model import TASKS, Environ, Fact, Manager, number, text

SIZE = "JSM_NAMESPACE_SIZE"
LOCAL_SIZE = "JSM_NAMESPACE_LOCAL_SIZE"
JOB = "LSB_JOBID"
NAMESPACE = "JSM_NAMESPACE_ID"
RANKFILE = "LSB_DJOB_RANKFILE"


def first_host(environ: Environ) -> Fact | None:
    """The first compute host, where this jsrun uses them all: the launch node is above them."""
    hosts = unique_hosts(environ.get(RANKFILE))[1:]
    size, each = number(SIZE, environ), number(LOCAL_SIZE, environ)
    if not hosts or size is None or each is None or size.value != each.value * len(hosts):
        return None
    return Fact(hosts[0], f"second host of {RANKFILE}")


def job(environ: Environ) -> Fact | None:
    """The job's number, and that of the jsrun in it."""
    if not environ.get(JOB) or not environ.get(NAMESPACE):
        return text(JOB, environ)
    return Fact(f"{environ[JOB]}.{environ[NAMESPACE]}", f"{JOB}.{NAMESPACE}")


MANAGER = Manager(
    "LSF jsrun",
    TASKS,
    needs=("JSM_NAMESPACE_RANK", SIZE, "JSM_NAMESPACE_LOCAL_RANK"),
    starter="jsrun --rs_per_host 1 --tasks_per_rs {n} {command}",
    rank="JSM_NAMESPACE_RANK",
    world_size=SIZE,
    local_rank="JSM_NAMESPACE_LOCAL_RANK",
    local_world_size=LOCAL_SIZE,
    rank_0_host=first_host,
    node_0_host=first_host,
    job=job,
    silent={
        "rank_0_host": f"{RANKFILE} names no host of rank 0 here: it cannot be read, or this jsrun "
        "uses some of its hosts only"
    },
)

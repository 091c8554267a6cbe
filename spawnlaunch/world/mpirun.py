"""An mpirun inside a Slurm job: it begins with the job's first node, unless it was told otherwise.

Every rank has the job's list of nodes, so all derive the same host of rank 0. Whether rank 0 is
there, as it is not under --rankfile or --host with another order, rank 0 sees.
"""

import os

from spawnlaunch.world import slurm
from spawnlaunch.world.facts import Environ, Fact, Reader


def table(size: str, local_size: str) -> dict[str, tuple[Reader, ...]]:
    """Who answers for the hosts, given the variables with the number of ranks, in all and here."""

    def first_node(environ: Environ) -> Fact | None:
        alone = environ[size] == environ[local_size]  # they may be on any node
        return None if alone else slurm.first_node(environ)

    answers = (first_node,)
    return {"rank_0_host": answers, "node_0_host": answers, "own_host": (own_host,)}


def own_host(_: Environ) -> Fact:
    """SLURMD_NODENAME may be that of mpirun, whose environment Hydra hands on."""
    return Fact(os.uname().nodename, "its host name")

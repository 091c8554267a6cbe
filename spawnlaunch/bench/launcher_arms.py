"""Launchers as arms: each of them starts your command on this node, in the same rounds.

They are started as from a shell: without the variables that the rank of the bench has from its own
launcher. torchrun's default port is the same for all of a node, so it is told a free one.
"""

import sys
from collections.abc import Mapping

from spawnlaunch.workers import environment
from spawnlaunch.world import identity

BEGAN = "SPAWNLAUNCH_BENCH_BEGAN"  # the start of the bench, by the machine's monotonic clock
KNOWN = {
    "torchrun": "-m torch.distributed.run --nproc-per-node {nproc} --master-port {port}",
    "spawnlaunch": "-m spawnlaunch --nproc {nproc}",
}
OF_RANKS = (*identity.RANKS, *identity.MASTER, environment.MARK, BEGAN, "OMP_NUM_THREADS")
PREFIXES = ("TORCHELASTIC_", "ROLE_")


def typed(name: str, nproc: int) -> str:
    """The command line of a launcher as the page shows it."""
    return f"python {KNOWN[name].partition(' --master-port')[0].format(nproc=nproc)}"


def words(name: str, nproc: int, port: int, command: tuple[str, ...]) -> tuple[str, ...]:
    """The command line of a launcher that starts a command so many times."""
    options = KNOWN[name].format(nproc=nproc, port=port).split()
    return (sys.executable, *options, "--no-python", *command)


def shell(environ: Mapping[str, str], threads: int | None) -> dict[str, str]:
    """The environment without what a rank has from its launcher; `threads` are the user's."""
    own = {
        name: value
        for name, value in environ.items()
        if name not in OF_RANKS and not name.startswith(PREFIXES)
    }
    return own if threads is None else {**own, "OMP_NUM_THREADS": str(threads)}

"""The file of SLURM_HOSTFILE: a host for each task, in the order of ranks.

    # who sits where        a comment, to the end of the line
    node3*2                 the next two ranks
    node1,node0             one each
    node[4-5]               likewise

Source: srun(1), SLURM_HOSTFILE; Slurm's src/common/proc_args.c and read_config.c.
"""

from collections.abc import Iterator
from itertools import islice, repeat

from spawnlaunch.world import hostlist
from spawnlaunch.world.facts import is_number


def hosts_of(path: str, tasks: int) -> list[str]:
    """The hosts of the first `tasks` ranks, or as many as there are; none where it is unreadable.

    >>> hosts_of("/no/such/file", 2)
    []
    """
    try:
        with open(path, errors="replace") as file:
            return list(islice(_hosts(file), tasks))
    except (OSError, hostlist.HostlistError):
        return []


def _hosts(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        for entry in _entries(line.partition("#")[0].strip()):
            name, _, times = entry.partition("*")
            for host in hostlist.hosts(name):
                yield from repeat(host, int(times) if is_number(times) else 1)


def _entries(line: str) -> Iterator[str]:
    """Cut a line at its commas, but not at those between brackets."""
    start = depth = 0
    for i, character in enumerate(line + ","):
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            if line[start:i].strip():
                yield line[start:i].strip()
            start = i + 1

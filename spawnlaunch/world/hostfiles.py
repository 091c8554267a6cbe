"""Files that name the hosts of a job.

PBS, Grid Engine and LSF write a slot or a host a line, the name first. That of SLURM_HOSTFILE has
a host for each task, in the order of ranks:

    # who sits where        a comment, to the end of the line
    node3*2                 the next two ranks
    node1,node0             one each
    node[4-5]               likewise

Source: srun(1), SLURM_HOSTFILE; Slurm's src/common/proc_args.c and read_config.c.
"""

from __future__ import annotations

from itertools import islice, repeat

from spawnlaunch.reading import file_text, is_number
from spawnlaunch.world import hostlist

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def unique_hosts(path: str) -> tuple[str, ...]:
    """The first word of each line, each once; none where there is no such file.

    >>> unique_hosts("/no/such/file")
    ()
    """
    lines = (file_text(path) or "").splitlines() if path else []
    return tuple(dict.fromkeys(line.split()[0] for line in lines if line.strip()))


def hosts_of(path: str, tasks: int) -> list[str]:
    """The hosts of the first `tasks` ranks, or as many as there are; none where it is unreadable.

    >>> hosts_of("/no/such/file", 2)
    []
    """
    try:
        lines = (file_text(path) or "").splitlines()
        return list(islice(_hosts(lines), min(tasks, hostlist.MAX_HOSTS)))
    except hostlist.HostlistError:
        return []


def _hosts(lines: Iterable[str]) -> Iterator[str]:
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

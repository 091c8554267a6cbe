"""Read files with a line per slot, in which resource managers list the hosts of a job."""

from __future__ import annotations

from spawnlaunch.base import reading
from spawnlaunch.world import identity


def listed_hosts(name: str, environ: identity.Environ) -> identity.Fact | None:
    """The hosts of the file that a variable names: the first word of each line, each host once.

    >>> listed_hosts("PBS_NODEFILE", {"PBS_NODEFILE": "/no/such/file"})
    """
    path = environ.get(name)
    lines = (reading.file_text(path) or "").splitlines() if path else []
    hosts = tuple(dict.fromkeys(line.split()[0] for line in lines if line.strip()))
    return identity.Fact(hosts, name) if hosts else None

"""LSF: a list of hosts, and a process on one of them.

blaunch starts processes on the other hosts, with the same variables.

    LSB_JOBID=8  LSB_JOBINDEX=0 (of an array: from 1)
    LSB_HOSTS="h1 h1 h2 h2" (not where it would be too long)  LSB_MCPU_HOSTS="h1 2 h2 2"
    LSB_DJOB_HOSTFILE=/path: a host per slot  LSB_DJOB_RANKFILE=/path: a host per slot

Source: IBM Spectrum LSF's reference of environment variables; blaunch(1).
"""

from __future__ import annotations

from spawnlaunch.world import identity
from spawnlaunch.world.managers import hostfiles

JOB, ARRAY = "LSB_JOBID", "LSB_JOBINDEX"
FILES = ("LSB_DJOB_HOSTFILE", "LSB_DJOB_RANKFILE")
LISTS = ("LSB_HOSTS", "LSB_MCPU_HOSTS", *FILES)


def hosts_in(name: str, environ: identity.Environ) -> identity.Fact | None:
    """The hosts of one of the variables, each once.

    >>> hosts_in("LSB_MCPU_HOSTS", {"LSB_MCPU_HOSTS": "h1 2 h2 2"})
    Fact(value=('h1', 'h2'), source='LSB_MCPU_HOSTS', rejected=())
    """
    if name in FILES:
        return hostfiles.listed_hosts(name, environ)
    words = environ.get(name, "").split()[:: 2 if name == "LSB_MCPU_HOSTS" else 1]
    return identity.Fact(tuple(dict.fromkeys(words)), name) if words else None


class Lsf(identity.Manager):
    """A process on a host of an LSF job."""

    name = "LSF"
    needs = (JOB,)
    why_no_nnodes = f"no list of hosts ({', '.join(LISTS)}) can be read here"

    def is_present(self, environ: identity.Environ) -> bool:
        return super().is_present(environ) and any(map(environ.get, LISTS))

    def hosts(self, environ: identity.Environ) -> identity.Fact | None:
        """The hosts of the first readable list; each list has all hosts."""
        return next(filter(None, (hosts_in(name, environ) for name in LISTS)), None)

    def job(self, environ: identity.Environ) -> identity.Fact | None:
        """The job's number, and the task's number in an array (LSB_JOBINDEX=0: no array)."""
        names = [n for n in (JOB, ARRAY) if environ.get(n, "") not in ("", "0")]
        return identity.Fact(".".join(environ[name] for name in names), ".".join(names))


LSF = Lsf()

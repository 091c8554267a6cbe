"""OAR: a list of hosts, and a process on one of them.

    OAR_JOB_ID=4  OAR_NODEFILE=/var/lib/oar/4: a line per core, under several names

Source: OAR's documentation for users, "Environment variables"; its oarexec.
"""

from __future__ import annotations

from spawnlaunch.world import identity
from spawnlaunch.world.managers import hostfiles

FILES = ("OAR_NODEFILE", "OAR_NODE_FILE", "OAR_FILE_NODES", "OAR_RESOURCE_FILE")


class Oar(identity.Manager):
    """A process on a host of an OAR job."""

    name = "OAR"
    needs = ("OAR_JOB_ID",)
    why_no_nnodes = f"no list of hosts ({', '.join(FILES)}) can be read here"

    def is_present(self, environ: identity.Environ) -> bool:
        return super().is_present(environ) and any(map(environ.get, FILES))

    def hosts(self, environ: identity.Environ) -> identity.Fact | None:
        """The hosts of the first readable file; each file has all hosts."""
        found = (hostfiles.listed_hosts(name, environ) for name in FILES)
        return next(filter(None, found), None)

    def job(self, environ: identity.Environ) -> identity.Fact | None:
        return identity.text("OAR_JOB_ID", environ)


OAR = Oar()

"""Ports at which something is told to listen that is started later.

A launcher that is told none takes one of those of ``master``, and the kernel gives an ephemeral one
to whatever connects: such a port may have gone to another test before anybody listens at it. And
what connects to an ephemeral one before anybody listens may have connected to itself.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spawnlaunch.world.host import hold_port

FIRST, END = 10_000, 20_000  # neither, where the kernel has its default range
NEXT = Path(tempfile.gettempdir(), f"spawnlaunch-test-port-{os.getuid()}")  # of all processes


@contextmanager
def alone(port: int) -> Iterator[None]:
    """Of all that ask for this one, which no choice can keep apart, only one is in here."""
    with Path(f"{NEXT}.{port}").open("w") as asked:
        fcntl.flock(asked, fcntl.LOCK_EX)
        yield


def free_ports(count: int) -> range:
    """So many in a row at which nobody listens, given again only after all the others."""
    with NEXT.open("a+") as following:
        fcntl.flock(following, fcntl.LOCK_EX)
        following.seek(0)
        first, held = int(following.read() or FIRST), [None]
        while None in held:
            first = first if first + count <= END else FIRST
            ports = range(first, first + count)
            held = [hold_port(port) for port in ports]
            for each in filter(None, held):
                each.lock.close()
            first = ports.stop
        following.truncate(0)
        following.write(str(first))
    return ports


def free_port() -> int:
    """The only one of ``free_ports``."""
    return free_ports(1)[0]

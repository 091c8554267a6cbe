"""MASTER_PORT on one machine: free, outside the ephemeral range, and ours while we run.

A port that was free when it was looked at can be gone when rank 0 listens on it. Two causes, two
measures. The kernel hands ports of its ephemeral range to any outgoing connection: so none of
those is taken. And a second launch may look at the same moment: so a launch that has chosen a port
holds a lock named after it, an abstract Unix socket, until its process ends. Such a socket lives
in the network namespace, as ports do, and leaves nothing in the file system (unix(7)).
"""

from __future__ import annotations

import _socket as socket  # the module socket adds enums and selectors, 5 ms of every launch
import os
import sys
from contextlib import closing

from spawnlaunch.errors import UsageError
from spawnlaunch.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

RANGE = range(20_000, 29_000)  # below the kernel's default ephemeral range, 32768-60999
EPHEMERAL = "/proc/sys/net/ipv4/ip_local_port_range"  # ip(7)


class HeldPort(NamedTuple):
    """A port that no other launch on this machine chooses while `lock` is open."""

    port: int
    lock: socket.socket


def hold_free_port(seed: int | None = None) -> HeldPort:
    """Choose a free TCP port and hold it against other launches; `seed` says where to begin.

    Raises UsageError where every candidate is taken.
    """
    if seed is None:
        seed = int.from_bytes(os.urandom(4), "little")
    candidates = _candidates(*ephemeral_range())
    for i in range(len(candidates)):
        held = hold(candidates[(seed + i) % len(candidates)])
        if held is not None:
            return held
    raise UsageError("found no free port for MASTER_PORT; end what listens on this machine")


def _candidates(low: int, high: int) -> Sequence[int]:
    """Ports outside the ephemeral range `low` to `high`: of RANGE, else of all unprivileged ones.

    Where a site made the ephemeral range that wide that nothing is left, RANGE itself.
    """
    for ports in (RANGE, range(1024, 65536)):
        outside = [port for port in ports if not low <= port <= high]
        if outside:
            return outside
    return RANGE


def ephemeral_range() -> tuple[int, int]:
    """First and last port that the kernel gives to outgoing connections; (0, -1) if unknown."""
    try:
        with open(EPHEMERAL) as file:
            low, high = file.read().split()
        return int(low), int(high)
    except OSError:
        return 0, -1


def hold(port: int) -> HeldPort | None:
    """Hold this port against other launches; None where one has it, or somebody listens there."""
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        if sys.platform == "linux":  # the only system with abstract sockets
            lock.bind(f"\0spawnlaunch-port-{port}")
        if is_free(port):
            return HeldPort(port, lock)
    except OSError:
        pass  # another launch has the lock
    lock.close()
    return None


def is_free(port: int) -> bool:
    """Whether a server could listen on `port` of this machine now (TIME_WAIT does not matter)."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
            probe.listen(1)
        except OSError:
            return False
    return True

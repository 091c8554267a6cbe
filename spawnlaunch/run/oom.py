"""Evidence of the out-of-memory killer: a SIGKILL that nobody sent has a reason.

The kernel counts its kills per cgroup, for cgroup v2 in memory.events (children included), for v1
in memory.oom_control; both have a line "oom_kill N". Sources: the kernel's
Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst, cgroups(7) for /proc/self/cgroup.
"""

from __future__ import annotations

import os

from spawnlaunch.reading import file_text
from spawnlaunch.records import NamedTuple

MOUNT = "/sys/fs/cgroup"


class Count(NamedTuple):
    """How many processes of this cgroup the kernel has killed for want of memory."""

    kills: int
    path: str
    limit: int | None  # bytes


def count() -> Count | None:
    """The count of the cgroup that this process is in; None where the kernel does not show it."""
    for directory, events, limit in _places():
        kills = _kills(file_text(os.path.normpath(f"{directory}/{events}")))
        if kills is not None:
            text = (file_text(os.path.normpath(f"{directory}/{limit}")) or "").strip()
            return Count(kills, f"{directory}/{events}", int(text) if text.isdigit() else None)
    return None


def evidence(before: Count | None, after: Count | None) -> str | None:
    """What the two counts say, in words; None: nobody was killed for want of memory."""
    if before is None or after is None or after.kills <= before.kills:
        return None
    n = after.kills - before.kills
    limit = (
        f", whose limit is {after.limit >> 20} MiB" if after.limit and after.limit < 1 << 60 else ""
    )
    return (
        f"out of memory: meanwhile the kernel killed {n} process{'es' if n > 1 else ''} of this "
        f"cgroup{limit} ({after.path}: oom_kill {before.kills} to {after.kills})"
    )


def _places() -> list[tuple[str, str, str]]:
    """Directories that may hold the counter, with the names of the counter and of the limit.

    In a container the path of /proc/self/cgroup may be the host's, and the mount's root ours.
    """
    places = []
    for line in (file_text("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            names = ("memory.oom_control", "memory.limit_in_bytes")
            places += [(f"{MOUNT}/memory{at}", *names) for at in (path.rstrip("/"), "")]
        elif not controllers:
            names = ("memory.events", "memory.max")
            places += [(f"{MOUNT}{at}", *names) for at in (path.rstrip("/"), "")]
    return places


def _kills(text: str | None) -> int | None:
    for line in (text or "").splitlines():
        key, _, value = line.partition(" ")
        if key == "oom_kill":
            return int(value)
    return None

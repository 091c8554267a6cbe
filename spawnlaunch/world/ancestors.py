"""The processes above this one, as /proc shows them (proc(5), "/proc/pid/status")."""

from __future__ import annotations

import os
from itertools import islice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

HEAD_LINES = 7  # Name, Umask (since Linux 4.7), State, Tgid, Ngid, Pid, PPid


def are_numbers_ours() -> bool:
    """Whether the numbers in /proc are ours, and not those of another PID namespace.

    `unshare --pid` without --mount-proc leaves the old /proc, and so do some containers: there
    /proc/N is another process than N (pid_namespaces(7)).
    """
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def above() -> Iterator[tuple[int, str]]:
    """(pid, command name) of the parent, its parent and so on; the name has at most 15 bytes."""
    pid = os.getppid() if are_numbers_ours() else 0
    while pid > 1:
        try:
            with open(f"/proc/{pid}/status", errors="replace") as file:
                said = dict(line.rstrip("\n").split(":\t", 1) for line in islice(file, HEAD_LINES))
        except OSError:
            return  # no /proc, or it has just ended
        yield pid, said["Name"]
        pid = int(said["PPid"])


def nearest(names: Collection[str]) -> int | None:
    """The pid of the nearest ancestor with one of these names; None where there is none."""
    return next((pid for pid, name in above() if name in names), None)


def environ_below(names: Collection[str]) -> dict[str, str] | None:
    """What the nearest such ancestor gave its child above us: the environment that it began with.

    None where that is this process itself, or cannot be read: exec leaves no trace of what was
    before it.
    """
    child = os.getpid()
    for pid, name in above():
        if name in names:
            return None if child == os.getpid() else _initial_environ(child)
        child = pid
    return None


def _initial_environ(pid: int) -> dict[str, str] | None:
    """The environment of a process as it was when its program began (proc(5))."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return None
    return dict(os.fsdecode(entry).split("=", 1) for entry in entries if b"=" in entry)

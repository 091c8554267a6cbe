"""Find the process that listens on a TCP port, as far as this user can see. Source: proc(5)."""

from __future__ import annotations

import os

from spawnlaunch.node import proc

LISTENS = "0A"  # the state of a listening socket in /proc/net/tcp


def sockets(port: int, pid: str = "self") -> set[str]:
    """The names of the sockets that listen on a port, in the network namespace of a process."""
    found = set()
    for table in ("net/tcp", "net/tcp6"):
        for line in (proc.read(pid, table) or "").splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == LISTENS and int(local.rpartition(":")[2], 16) == port:
                found.add(f"socket:[{inode}]")
    return found


def has_one_of(pid: str, names: set[str]) -> bool:
    """Whether a process has one of these sockets open; False where it is another user's."""
    directory = f"/proc/{pid}/fd"
    try:
        return any(os.readlink(f"{directory}/{fd}") in names for fd in os.listdir(directory))
    except OSError:
        return False  # another user's process, or one that has just ended


def who(port: int) -> str:
    """Return in words which process or launch has a port that is in use."""
    names = sockets(port)
    if not names:
        return "another launch, which has chosen it"
    for pid in os.listdir("/proc") if proc.is_proc_ours() else ():
        if pid.isdigit() and has_one_of(pid, names):
            return f"{(proc.read(pid, 'comm') or '').strip()} (pid {pid})"
    return "a process that this user cannot see"

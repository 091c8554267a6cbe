"""The processes above this one, as /proc shows them (proc(5))."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


def are_numbers_ours() -> bool:
    """Whether the numbers in /proc are ours, and not those of another PID namespace.

    `unshare --pid` without --mount-proc leaves the old /proc, and so do some containers: there
    /proc/N is another process than N (pid_namespaces(7)).
    """
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def read(pid: int | str, file: str) -> str:
    """What /proc says of a process; nothing where it has ended, or is another user's."""
    try:
        with open(f"/proc/{pid}/{file}", "rb", buffering=0) as opened:
            return os.fsdecode(opened.read())
    except OSError:
        return ""


def above() -> Iterator[tuple[int, str]]:
    """(pid, command name) of the parent, its parent and so on; the name has at most 15 bytes."""
    pid = os.getppid() if are_numbers_ours() else 0
    while pid > 1:
        # "pid (name) state parent ...", and anything may stand in a name.
        head, _, rest = read(pid, "stat").rpartition(") ")
        if not rest:
            return
        yield pid, head.partition(" (")[2]
        pid = int(rest.split(maxsplit=2)[1])


def nearest(names: Collection[str]) -> int | None:
    """The pid of the nearest ancestor with one of these names; None where there is none."""
    for pid, name in above():
        if name in names:
            return pid
    return None


def environ_below(names: Collection[str]) -> dict[str, str] | None:
    """What the nearest such ancestor gave its child above us: the environment that it began with.

    None where that is this process itself, or cannot be read: exec leaves no trace of what was
    before it.
    """
    child = os.getpid()
    for pid, name in above():
        if name in names:
            entries = read(child, "environ").split("\0") if child != os.getpid() else []
            return dict(entry.split("=", 1) for entry in entries if "=" in entry) or None
        child = pid
    return None

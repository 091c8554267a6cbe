"""The processes above this one, as /proc shows them (proc(5), "/proc/pid/stat")."""

import os
from collections.abc import Collection, Iterator


def above() -> Iterator[tuple[int, str]]:
    """(pid, command name) of the parent, its parent and so on; the name has at most 15 bytes."""
    pid = os.getppid()
    while pid > 1:
        try:
            with open(f"/proc/{pid}/stat", errors="replace") as file:
                # "pid (name) state ppid ...": the name may hold anything, so cut at its last ")"
                name, _, rest = file.read().partition("(")[2].rpartition(")")
        except OSError:
            return  # no /proc, or it has just ended
        yield pid, name
        pid = int(rest.split()[1])


def nearest(names: Collection[str]) -> int | None:
    """The pid of the nearest ancestor with one of these names; None where there is none."""
    return next((pid for pid, name in above() if name in names), None)

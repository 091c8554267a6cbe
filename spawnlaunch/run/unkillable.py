"""Why a process does not end that SIGKILL was sent to.

A process of another user is not ours to signal (kill(2)). One that is traced ends only once its
tracer has waited for it (ptrace(2), "Death under ptrace"), and a tracer may be stopped itself.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from spawnlaunch.reading import file_text
from spawnlaunch.run.processtree import is_proc_ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def reason(pid: int) -> str | None:
    """Why it will not end by itself, in words; None: it may, as soon as the kernel lets it."""
    return _foreign(pid) or _held(pid)


def name(pid: int) -> str:
    """The pid, and the name of its program where that can be seen."""
    command = (file_text(f"/proc/{pid}/comm") or "").strip() if is_proc_ours() else ""
    return f"pid {pid} ({command})" if command else f"pid {pid}"


def exit_code(zombie: int) -> int:
    """How a process ended that nobody can wait for, as waitpid(2) has it. Raises OSError.

    It is the last field of /proc/PID/stat (proc(5)), and 0 for one that we may not look into.
    """
    if not is_proc_ours():
        return 0
    with open(f"/proc/{zombie}/stat", "rb") as file:
        return int(file.read().rpartition(b") ")[2].split()[-1])


def zombies(pids: Iterable[int], patience_s: float) -> Iterator[str]:
    """A line for each child that has ended and cannot be reaped in that time (seconds, for all)."""
    deadline = time.monotonic() + patience_s
    for pid in pids:
        with suppress(ChildProcessError):  # somebody has reaped it
            while not os.waitpid(pid, os.WNOHANG)[0]:
                if time.monotonic() > deadline:
                    yield f"{name(pid)} has ended, but {_held(pid) or 'cannot be reaped'}"
                    break
                time.sleep(0.01)


def _foreign(pid: int) -> str | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        uid = _field(f"/proc/{pid}/status", "Uid") if is_proc_ours() else None
        whom = _user(int(uid)) if uid else "another user"
        return f"it runs as {whom}, whom {_user(os.geteuid())} may not signal"
    return None


def _held(pid: int) -> str | None:
    try:
        threads = os.listdir(f"/proc/{pid}/task") if is_proc_ours() else []
    except OSError:
        return None
    for thread in threads:
        tracer = int(_field(f"/proc/{pid}/task/{thread}/status", "TracerPid") or 0)
        if tracer:
            return f"it is held by its tracer, {name(tracer)}"
    return None


def _user(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _field(path: str, key: str) -> str | None:
    """The first word behind a key of a status file."""
    lines = (line.partition(":") for line in (file_text(path) or "").splitlines())
    return next((value.split()[0] for name, _, value in lines if name == key), None)

"""Why a process does not end that SIGKILL was sent to, in words.

One of another user is not ours to signal (kill(2)). One that is traced ends only once its tracer
has waited for it (ptrace(2), "Death under ptrace"), and a tracer may be stopped itself.
"""

from __future__ import annotations

import os
from contextlib import suppress

from spawnlaunch import machine
from spawnlaunch.node import proc
from spawnlaunch.run import events

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def why_it_stays(pid: int) -> str:
    """In words; "": it may end by itself, as soon as the kernel lets it."""
    try:
        machine.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        uid = proc.status(pid, "Uid")
        whom = machine.name_of_user(int(uid.split()[0])) if uid else "another user"
        return f"it runs as {whom}, whom {machine.name_of_user(machine.geteuid())} may not signal"
    return _held(pid)


def named(pid: int) -> str:
    """The pid, and the name of its program where that can be seen."""
    command = (proc.read(pid, "comm") or "").strip() if proc.is_proc_ours() else ""
    return f"pid {pid} ({command})" if command else f"pid {pid}"


def not_reaped(zombies: Iterable[int], patience_s: float) -> Iterator[str]:
    """A line for each child that has ended and cannot be reaped in that time (seconds, for all)."""
    deadline = machine.running_s() + patience_s
    for pid in zombies:
        with suppress(ChildProcessError):  # somebody has reaped it
            while not machine.waitpid(pid, os.WNOHANG)[0]:
                if machine.running_s() > deadline:
                    yield f"{named(pid)} has ended, but {_held(pid) or 'cannot be reaped'}"
                    break
                events.patient_sleep(0.01)


def _held(pid: int) -> str:
    tracer = proc.tracer(pid)
    return f"it is held by its tracer, {named(tracer)}" if tracer else ""

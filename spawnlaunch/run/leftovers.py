"""What workers that have ended have left: how it is waited for, and why one of it stays.

What workers with status 0 have left, as an upload, has the grace to end:

after a second      it is named
after the grace     it is told to end (SIGTERM)
TOLD_S later        it is killed, as what a failed worker leaves is at once

A process may not end that SIGKILL was sent to. One of another user is not ours to signal (kill(2)).
One that is traced ends only once its tracer has waited for it (ptrace(2), "Death under ptrace"),
and a tracer may be stopped itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from spawnlaunch.base import events, machine
from spawnlaunch.base.signals import signal
from spawnlaunch.node import proc
from spawnlaunch.run.tree import Tree, send

TYPE_CHECKING = False
if TYPE_CHECKING:
    Look = Callable[[float], bool]  # for so many seconds; False: there is a cause to end the launch

SAID_S = 1.0
TOLD_S = 5.0
LOOK_S = 0.05  # until the next look
MOST_NAMED = 5


def let_end(tree: Tree, grace_s: float, look: Look, say: Callable[[Iterable[str]], object]) -> None:
    """Wait for their end; the caller kills what is left. A launch that is to end does not wait."""
    if not _goes_on(tree, look, min(SAID_S, grace_s)):
        return
    say([f"all workers have ended well, and left {_names(tree)}: "
         f"{grace_s:g} s (--grace) from now to end without being told"])  # fmt: skip
    if not _goes_on(tree, look, grace_s - SAID_S):
        return
    say([f"{_names(tree)} is told to end: {grace_s:g} s are over"])
    send(signal.SIGTERM, tree.living())
    if _goes_on(tree, look, min(TOLD_S, grace_s)):
        say([f"killing {_names(tree)}"])


def _goes_on(tree: Tree, look: Look, for_s: float) -> bool:
    """Whether one still runs after so many seconds, and nothing ends the launch."""
    deadline, is_over = machine.running_s() + for_s, False
    while tree.living():
        if is_over:
            return True
        if not look(LOOK_S):
            return False
        is_over = machine.running_s() > deadline  # of this, a gap was just counted
    return False


def _names(tree: Tree) -> str:
    pids = sorted({process.pid for process in tree.living()})
    return ", ".join(map(named, pids[:MOST_NAMED])) + ", ..." * (len(pids) > MOST_NAMED)


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
        if not _is_reaped(pid, deadline):
            yield f"{named(pid)} has ended, but {_held(pid) or 'cannot be reaped'}"


def _is_reaped(pid: int, until: float) -> bool:
    with suppress(ChildProcessError):  # somebody has reaped it
        while not machine.waitpid(pid, os.WNOHANG)[0]:
            if machine.running_s() > until:
                return False
            events.patient_sleep(0.01)
    return True


def _held(pid: int) -> str:
    tracer = proc.tracer(pid)
    return f"it is held by its tracer, {named(tracer)}" if tracer else ""

"""What workers leave: how their processes are ended, and their files removed.

Processes that workers with status 0 have left, such as an upload, have the grace to end:

after a second      it is named
after the grace     it is told to end (SIGTERM)
TERM_GRACE_S later  it is killed; what a failed worker leaves is killed at once

A process may stay in spite of SIGKILL. We may not signal a process of another user (kill(2)). A
traced process ends only once its tracer has waited for it (ptrace(2), "Death under ptrace"), and a
tracer may be stopped itself.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from spawnlaunch.base import events, machine, say
from spawnlaunch.base.signals import signal
from spawnlaunch.node import proc
from spawnlaunch.run.tree import Tree, send

TYPE_CHECKING = False
if TYPE_CHECKING:
    Look = Callable[[float], bool]  # for so many seconds; False: there is a cause to end the launch

NAMED_AFTER_S = 1.0
TERM_GRACE_S = 5.0
LOOK_S = 0.05  # until the next look
MOST_NAMED = 5
FOR_LISTING = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def let_end(
    tree: Tree, grace_s: float, look: Look, show: Callable[[Iterable[str]], object]
) -> None:
    """Wait until the processes that workers have left end; the caller kills those that stay.

    A launch that is to end does not wait.
    """
    if not _goes_on(tree, look, min(NAMED_AFTER_S, grace_s)):
        return
    show([f"all workers have ended well, and left {_names(tree)}: "
          f"{grace_s:g} s (--grace) from now to end without being told"])  # fmt: skip
    if not _goes_on(tree, look, grace_s - NAMED_AFTER_S):
        return
    show([f"{_names(tree)} is told to end: {grace_s:g} s are over"])
    send(signal.SIGTERM, tree.living())
    if _goes_on(tree, look, min(TERM_GRACE_S, grace_s)):
        show([f"killing {_names(tree)}"])


def _goes_on(tree: Tree, look: Look, for_s: float) -> bool:
    """Whether such a process still runs after `for_s` seconds, and nothing ends the launch."""
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


def end(tree: Tree) -> bool:
    """Kill all processes of the run that are left, and name those that do not die.

    True: all are gone.
    """
    pids = [process.pid for process in tree.end(tree.patience_s)]
    if pids:
        stuck = "it must be stuck in the kernel"
        say.say(f"could not kill {named(pid)}, which is left: "
                f"{why_unkillable(pid) or stuck}" for pid in pids)  # fmt: skip
    return not pids


def why_unkillable(pid: int) -> str:
    """The reason why a process survives SIGKILL; "": it may still end by itself."""
    try:
        machine.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        uid = proc.status(pid, "Uid")
        whom = machine.name_of_user(int(uid.split()[0])) if uid else "another user"
        return f"it runs as {whom}, whom {machine.name_of_user(machine.geteuid())} may not signal"
    return _name_tracer(pid)


def named(pid: int) -> str:
    """The pid, and the name of the program where it can be read."""
    command = (proc.read(pid, "comm") or "").strip() if proc.is_proc_ours() else ""
    return f"pid {pid} ({command})" if command else f"pid {pid}"


def not_reaped(zombies: Iterable[int], patience_s: float) -> Iterator[str]:
    """A line for each child that has ended and cannot be reaped in `patience_s` seconds."""
    deadline = machine.running_s() + patience_s
    for pid in zombies:
        if not _is_reaped(pid, deadline):
            yield f"{named(pid)} has ended, but {_name_tracer(pid) or 'cannot be reaped'}"


def _is_reaped(pid: int, until: float) -> bool:
    with suppress(ChildProcessError):  # it has been reaped already
        while not machine.waitpid(pid, os.WNOHANG)[0]:
            if machine.running_s() > until:
                return False
            events.patient_sleep(0.01)
    return True


def _name_tracer(pid: int) -> str:
    tracer = proc.tracer(pid)
    return f"it is held by its tracer, {named(tracer)}" if tracer else ""


def remove_scratch(directory: str) -> None:
    """Remove the scratch directory, if it is there, with all that the workers left in it.

    Only a directory of our own user: where others may rename entries of TMPDIR, the name may by now
    lead elsewhere.
    """
    try:
        if machine.lstat(directory).st_uid == machine.geteuid():
            machine.rmdir(directory)
    except FileNotFoundError:
        return
    except OSError as error:  # most are empty
        remove_tree(directory)
        if machine.lexists(directory):
            say.say([f"cannot remove {directory}: {error.strerror}; type rm -r {directory}"])


def remove_tree(directory: str) -> None:
    """Remove a directory of ours with all that is in it, unless the system refuses."""
    try:
        fd = machine.open(directory, FOR_LISTING)
    except OSError:
        return
    try:
        if machine.fstat(fd).st_uid == machine.geteuid():
            _empty(fd)
            machine.rmdir(f"../{os.path.basename(directory)}", dir_fd=fd)
    except OSError:
        pass
    finally:
        machine.close(fd)


def _empty(top: int) -> None:
    """Remove the entries of an open directory. Raises OSError.

    Directories may be nested deeper than a path or a recursion can be. So the entries of each
    directory in `top` are removed or moved up into `top`, again and again, until no directory has
    any.
    """
    while full := [name for name in machine.listdir(top) if not _is_removed(name, top)]:
        for name in full:
            _move_up(name, top)


def _move_up(name: str, top: int) -> None:
    """Move the directories in a directory of `top` into `top`, and remove the files."""
    fd = machine.open(name, FOR_LISTING, dir_fd=top)
    try:
        for each in machine.listdir(fd):
            if not _is_removed(each, fd):
                machine.rename(each, machine.urandom(8).hex(), src_dir_fd=fd, dst_dir_fd=top)
    finally:
        machine.close(fd)


def _is_removed(name: str, fd: int) -> bool:
    """Remove an entry of an open directory; False: it is a directory that has entries."""
    try:
        if stat.S_ISDIR(machine.lstat(name, dir_fd=fd).st_mode):
            machine.rmdir(name, dir_fd=fd)
        else:
            machine.unlink(name, dir_fd=fd)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # rmdir(2): it may be either
            raise
        return False
    return True

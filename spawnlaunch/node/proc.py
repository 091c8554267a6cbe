"""Read processes from /proc: their parents, groups, states and environments.

The pids in /proc are those of the PID namespace that it was mounted in. Where this process is in
another one, or /proc is not mounted, or processes are hidden (hidepid), only this process's own
children can be found, with waitid(2). That is enough to end all of them: the children of a killed
child become this process's children.

Sources: proc(5); pid_namespaces(7); Documentation/filesystems/proc.rst, 3.7 on the `children`
files, which need CONFIG_PROC_CHILDREN and are replaced by a walk through /proc where they are
missing.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress

from spawnlaunch.base import machine, records
from spawnlaunch.node import sysfs

SHORTAGES = frozenset({12, 23, 24})  # ENOMEM, ENFILE, EMFILE (errno(3)), without importing errno
MOST_PIDS = 1 << 22  # PID_MAX_LIMIT of the kernel's include/linux/threads.h

PF_EXITING, PF_SIGNALED = 0x4, 0x400


class Process(records.NamedTuple):
    """A process with the fields of /proc/PID/stat that identify it and its relatives."""

    pid: int
    dead: bool  # a zombie, or about to be one; False if only its first thread has ended
    parent: int
    group: int
    session: int
    start: int  # clock ticks since boot


def is_proc_usable() -> bool:
    """Whether /proc/N shows process N of this process's PID namespace, and not of another one.

    `unshare --pid` without --mount-proc leaves the old /proc, and so do some containers. By chance
    a process may have the same pid in two namespaces; NSpid lists both.
    """
    pid, known = machine.getpid(), machine.remembered
    if pid not in known:  # by this process's pid: each fork may be in a namespace of its own
        try:
            shown = machine.readlink("/proc/self")
        except OSError:
            shown = ""
        fields = sysfs.fields("/proc/self/status", ":") if shown == str(pid) else {}
        numbers = fields.get("NSpid", shown)  # since Linux 4.1
        known[pid] = shown == str(pid) and len(numbers.split()) == 1
    return known[pid]


def stat(process: str) -> list[bytes]:
    """The fields of PID/stat, or of PID/task/TID/stat: [n - 1] is number n of proc(5).

    The command name may contain spaces and parentheses. Raises OSError.
    """
    head, _, rest = machine.content(f"/proc/{process}/stat").rpartition(b") ")
    pid, _, name = head.partition(b" (")
    return [pid, name, *rest.split()]


def look(pid: int) -> Process | None:
    """Return the process with this pid; None where there is none, or it cannot be seen."""
    try:
        if not is_proc_usable():
            return _look_at_child(pid)
        fields = stat(str(pid))
    except OSError as error:
        _check(error)
        return _look_at_child(pid)
    parent, group, session, threads, start = (int(fields[n - 1]) for n in (4, 5, 6, 20, 22))
    return Process(pid, fields[2] in (b"Z", b"X") and threads <= 1, parent, group, session, start)


def _look_at_child(pid: int) -> Process | None:
    """Return a child of this process without /proc; None where it cannot be found.

    Its start is unknown and not needed: no other process gets its pid until it is reaped.
    """
    try:
        known = has_ended(pid), machine.getpid(), machine.getpgid(pid), machine.getsid(pid)
        return Process(pid, *known, start=0)
    except (OSError, AttributeError):  # macOS has no waitid before Python 3.13
        return None


def has_ended(child: int) -> bool:
    """Whether a child of this process is a zombie; does not reap it. Raises ChildProcessError."""
    try:
        return machine.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        raise
    except OSError:
        return is_zombie(child)


def is_zombie(pid: int) -> bool:
    """Whether a process is a zombie: it has ended, and its parent has not waited for it."""
    return (status(pid, "State") or "").startswith("Z")


def has_children() -> bool:
    """Whether this process has children, zombies included; True where that is unknown."""
    try:
        machine.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    except (AttributeError, OSError):  # no waitid
        pass
    return True


def is_stopped(child: int) -> bool:
    """Whether a child of this process is stopped by a signal."""
    try:
        return machine.waitid(os.P_PID, child, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    except (AttributeError, OSError):  # there is no waitid on macOS
        return (status(child, "State") or "").startswith("T")


def child_pids(pid: int) -> list[int]:
    """The pids of a process's children, zombies included.

    A child of this process keeps its pid until it is reaped.
    """
    if not is_proc_usable():
        return _child_pids_without_proc() if pid == machine.getpid() else []
    pids: list[int] = []
    for thread in _names(f"/proc/{pid}/task"):
        try:
            children = machine.content(f"/proc/{pid}/task/{thread}/children")
            pids.extend(map(int, children.split()))
        except FileNotFoundError:
            if machine.access(f"/proc/{pid}/task/{thread}/stat", os.F_OK):
                return [process.pid for process in everything() if process.parent == pid]
        except OSError as error:
            _check(error)  # any other error means that the thread has ended
    return pids


def _child_pids_without_proc() -> list[int]:
    """The pids of this process's children without /proc: the function tries every possible pid.

    First come the pids after this process's own. If no child has one of these, the kernel has
    started again at low pids, and the function tries all, which takes seconds.
    """
    if not (hasattr(machine, "waitid") and has_children()):
        return []
    newest = 0  # none can be started
    with suppress(OSError):
        newest = machine.fork(lambda: machine.exit_now(0))
        machine.waitpid(newest, 0)
    newer = range(machine.getpid() + 1, newest)
    return [*filter(_look_at_child, newer)] or [*filter(_look_at_child, range(2, MOST_PIDS))]


def children(pid: int) -> list[Process]:
    """The children of a process, zombies included."""
    return [child for child in map(look, child_pids(pid)) if child and child.parent == pid]


def everything() -> list[Process]:
    """All processes that can be seen."""
    pids = filter(str.isdigit, _names("/proc") if is_proc_usable() else ())
    return [*filter(None, map(look, map(int, pids)))]


def below(roots: Iterable[Process]) -> list[Process]:
    """Return these processes and all their descendants."""
    processes: dict[int, Process] = {}
    todo = list(roots)
    while todo:
        process = todo.pop()
        if process.pid not in processes:
            processes[process.pid] = process
            todo.extend(children(process.pid))
    return list(processes.values())


def is_alive(process: Process) -> bool:
    """Whether this process still exists, and its pid is not another process's by now."""
    now = look(process.pid)
    return now is not None and now.start == process.start and not now.dead


def environ(pid: int) -> dict[str, str] | None:
    """The environment that a process was started with; None where it cannot be seen.

    A child that has not called exec shows its parent's.
    """
    text = read(pid, "environ") if is_proc_usable() else None
    if text is None:
        return None
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)


def read(process: int | str, file: str) -> str | None:
    """The text of a file of PID, or of PID/task/TID; None where it cannot be read."""
    try:
        return os.fsdecode(machine.content(f"/proc/{process}/{file}"))
    except OSError:
        return None


# The processes above this one


def above() -> Iterator[tuple[int, str]]:
    """(pid, command name) of the parent, its parent and so on; the name has at most 15 bytes."""
    pid = machine.getppid() if is_proc_usable() else 0
    while pid > 1:
        try:
            _, name, _, parent, *_ = stat(str(pid))
        except OSError:
            return
        yield pid, os.fsdecode(name)
        pid = int(parent)


def nearest(names: Collection[str]) -> int | None:
    """The pid of the nearest ancestor with one of these names; None where there is none."""
    return next((pid for pid, name in above() if name in names), None)


def environ_below(names: Collection[str]) -> dict[str, str] | None:
    """The environment of the child of the nearest such ancestor, if that child is above this one.

    None where that child is this process itself, as exec has replaced its first environment, and
    where it cannot be read.
    """
    child = machine.getpid()
    for pid, name in above():
        if name in names:
            return environ(child) or None if child != machine.getpid() else None
        child = pid
    return None


# The state of a process


def catches(pid: int, signum: int) -> bool:
    """Whether a process has a handler for the signal, and survives it (SigCgt in proc(5))."""
    mask = status(pid, "SigCgt")
    return bool(int(mask or "0", 16) >> (signum - 1) & 1)


def is_dying(pid: int) -> bool:
    """Whether a process is ending; that takes long while it dumps core or frees much memory.

    CoreDumping is of Linux 4.15; the flags are in include/linux/sched.h.
    """
    text = (read(pid, "stat") or "") if is_proc_usable() else ""
    _, *fields = text.rpartition(") ")[2].split() or [""]  # from number 4 on
    flags, threads = (int(fields[n - 4]) for n in (9, 20)) if fields else (0, 0)
    is_exiting = flags & PF_EXITING and threads == 1  # its first thread may end before others
    return bool(flags & PF_SIGNALED or is_exiting) or status(pid, "CoreDumping") == "1"


def is_stopped_by_debugger(pid: int) -> bool:
    """Whether a debugger has stopped the process."""
    return (status(pid, "State") or "").startswith("t")


def tracer(pid: int) -> int:
    """The pid of the tracer of a process or one of its threads; 0: none that can be seen."""
    threads = sysfs.names(f"/proc/{pid}/task") if is_proc_usable() else []
    tracers = (int(status(f"{pid}/task/{each}", "TracerPid") or 0) for each in threads)
    return next(filter(None, tracers), 0)


def status(process: int | str, key: str) -> str | None:
    """A value in the status file of PID, or of PID/task/TID; None where it cannot be known."""
    return sysfs.fields(f"/proc/{process}/status", ":").get(key) if is_proc_usable() else None


def open_fds() -> list[int]:
    """The open descriptors of this process."""
    try:
        candidates = [int(name) for name in machine.listdir("/dev/fd")]
    except OSError:  # there is no /proc
        candidates = [*range(machine.sysconf("SC_OPEN_MAX"))]
    fds = []
    for fd in candidates:
        try:
            machine.fstat(fd)
        except OSError:
            continue  # the descriptor of the listing itself
        fds.append(fd)
    return fds


def _names(directory: str) -> list[str]:
    """The entries of a directory; empty where it has gone."""
    try:
        return machine.listdir(directory)
    except OSError as error:
        _check(error)
        return []


def _check(error: OSError) -> None:
    """Raise the error again where it is a shortage, and does not mean that a process has ended.

    Then the guard fails, and the launcher, which has descriptors of its own, takes over.
    """
    if error.errno in SHORTAGES:
        raise error


# The process that listens on a TCP port, as far as this user can see

LISTENS = "0A"  # the state of a listening socket in /proc/net/tcp


def listening_sockets(port: int) -> set[str]:
    """The names of the sockets that listen on a port, in the network namespace of this process."""
    sockets = set()
    for table in ("net/tcp", "net/tcp6"):
        for line in (read("self", table) or "").splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == LISTENS and int(local.rpartition(":")[2], 16) == port:
                sockets.add(f"socket:[{inode}]")
    return sockets


def describe_listener(port: int) -> str:
    """Return in words which process or launch has a port that is in use."""
    sockets = listening_sockets(port)
    if not sockets:
        return "another launch, which has chosen it"
    for pid in machine.listdir("/proc") if is_proc_usable() else ():
        directory = f"/proc/{pid}/fd"
        try:
            fds = machine.listdir(directory) if pid.isdigit() else []
            is_listener = any(machine.readlink(f"{directory}/{fd}") in sockets for fd in fds)
        except OSError:
            continue  # another user's process, or one that has just ended
        if is_listener:
            return f"{(read(pid, 'comm') or '').strip()} (pid {pid})"
    return "a process that this user cannot see"

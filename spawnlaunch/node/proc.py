"""What /proc tells of processes: which there are, whose they are, and what they do.

The numbers in /proc are those of the PID namespace that it was mounted in. Where that is not ours,
or nothing is mounted, or a process is hidden (hidepid), only our own children can be known: by
asking waitid(2). That is enough in the end: what is below a child that is killed becomes our child.

Sources: proc(5); pid_namespaces(7); Documentation/filesystems/proc.rst, 3.7 on the `children`
files, which need CONFIG_PROC_CHILDREN and are replaced by a walk through /proc where they are
missing.
"""

from __future__ import annotations

import os

from spawnlaunch.base import machine, records
from spawnlaunch.node import sysfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

SHORTAGES = frozenset({12, 23, 24})  # ENOMEM, ENFILE, EMFILE (errno(3); one module less to import)
MOST_PIDS = 1 << 22  # PID_MAX_LIMIT of the kernel's include/linux/threads.h

PF_EXITING, PF_SIGNALED = 0x4, 0x400


class Process(records.NamedTuple):
    """What /proc/PID/stat says that does not change, or tells whose process it is."""

    pid: int
    dead: bool  # a zombie, or about to be one; not if only its first thread has ended
    parent: int
    group: int
    session: int
    start: int  # clock ticks since boot


def is_proc_ours() -> bool:
    """Whether process N is what /proc/N shows, and not another one of another PID namespace.

    `unshare --pid` without --mount-proc leaves the old /proc, and so do some containers. By chance
    a process may have one number in two namespaces; NSpid lists both.
    """
    pid, known = machine.getpid(), machine.remembered
    if pid not in known:  # by our pid: each fork may be in a namespace of its own
        try:
            shown = machine.readlink("/proc/self")
        except OSError:
            shown = ""
        told = sysfs.fields("/proc/self/status", ":") if shown == str(pid) else {}
        numbers = told.get("NSpid", shown)  # since Linux 4.1
        known[pid] = shown == str(pid) and len(numbers.split()) == 1
    return known[pid]


def stat(process: str) -> list[bytes]:
    """The fields of PID/stat, or of PID/task/TID/stat: [n - 1] is number n of proc(5).

    The name may hold spaces and parentheses of its own. Raises OSError.
    """
    head, _, rest = machine.content(f"/proc/{process}/stat").rpartition(b") ")
    pid, _, name = head.partition(b" (")
    return [pid, name, *rest.split()]


def look(pid: int) -> Process | None:
    """The process of that number; None where there is none, or none to be seen."""
    try:
        if not is_proc_ours():
            return _look_at_child(pid)
        fields = stat(str(pid))
    except OSError as error:
        _check(error)
        return _look_at_child(pid)
    parent, group, session, threads, start = (int(fields[n - 1]) for n in (4, 5, 6, 20, 22))
    return Process(pid, fields[2] in (b"Z", b"X") and threads <= 1, parent, group, session, start)


def _look_at_child(pid: int) -> Process | None:
    """The same of a child of this process, without /proc.

    Its start is not known, nor needed: its number is its own until it is reaped.
    """
    try:
        known = has_ended(pid), machine.getpid(), machine.getpgid(pid), machine.getsid(pid)
        return Process(pid, *known, start=0)
    except (OSError, AttributeError):  # macOS has no waitid before Python 3.13
        return None


def has_ended(child: int) -> bool:
    """Whether a child of this process is a zombie, which it stays. Raises ChildProcessError."""
    try:
        return machine.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        raise
    except OSError:
        return is_zombie(child)


def is_zombie(pid: int) -> bool:
    """Whether a process has ended, and nobody has waited for it."""
    return (status(pid, "State") or "").startswith("Z")


def has_children() -> bool:
    """Whether this process has children, zombies included; True where that cannot be asked."""
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
    except OSError:
        return (status(child, "State") or "").startswith("T")


def child_pids(pid: int) -> list[int]:
    """The numbers of a process's children, zombies included.

    Those of this process's own children stay theirs until they are reaped.
    """
    if not is_proc_ours():
        return _own_pids() if pid == machine.getpid() else []
    pids: list[int] = []
    for thread in _names(f"/proc/{pid}/task"):
        try:
            children = machine.content(f"/proc/{pid}/task/{thread}/children")
            pids.extend(map(int, children.split()))
        except FileNotFoundError:
            if machine.access(f"/proc/{pid}/task/{thread}/stat", os.F_OK):
                return [process.pid for process in everything() if process.parent == pid]
        except OSError as error:
            _check(error)  # else the thread has ended
    return pids


def _own_pids() -> list[int]:
    """The numbers of this process's children, without /proc: every possible number is tried.

    First the numbers that were given after our own. If no child has one of these, the kernel has
    started again at low numbers, and all are tried, which takes seconds.
    """
    if not (hasattr(machine, "waitid") and has_children()):
        return []
    given = range(machine.getpid() + 1, _newest_pid())
    return [*filter(_look_at_child, given)] or [*filter(_look_at_child, range(2, MOST_PIDS))]


def _newest_pid() -> int:
    """The number that a process gets which is started now; 0 where there can be none."""
    try:
        pid = machine.fork(lambda: machine.exit_now(0))
    except OSError:
        return 0
    machine.waitpid(pid, 0)
    return pid


def children(pid: int) -> list[Process]:
    """The children of a process, zombies included."""
    return [child for child in map(look, child_pids(pid)) if child and child.parent == pid]


def everything() -> list[Process]:
    """Every process that can be seen."""
    pids = filter(str.isdigit, _names("/proc") if is_proc_ours() else ())
    return [*filter(None, map(look, map(int, pids)))]


def below(roots: Iterable[Process]) -> list[Process]:
    """The processes, and all their descendants."""
    found: dict[int, Process] = {}
    todo = list(roots)
    while todo:
        process = todo.pop()
        if process.pid not in found:
            found[process.pid] = process
            todo.extend(children(process.pid))
    return list(found.values())


def is_alive(process: Process) -> bool:
    """Whether a process that was looked at is still there."""
    now = look(process.pid)
    return now is not None and now.start == process.start and not now.dead


def environ(pid: int) -> dict[str, str] | None:
    """The environment that a process was started with; None where it cannot be seen.

    A child that has not called exec shows its parent's.
    """
    text = read(pid, "environ") if is_proc_ours() else None
    if text is None:
        return None
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)


def read(process: int | str, file: str) -> str | None:
    """What a file of PID, or of PID/task/TID, says; None where it is gone, or not to be seen."""
    try:
        return os.fsdecode(machine.content(f"/proc/{process}/{file}"))
    except OSError:
        return None


# The processes above this one


def above() -> Iterator[tuple[int, str]]:
    """(pid, command name) of the parent, its parent and so on; the name has at most 15 bytes."""
    pid = machine.getppid() if is_proc_ours() else 0
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
    """The environment that the nearest such ancestor gave to its child, which is above us.

    None where that child is this process, as exec has replaced what it was started with, and where
    it cannot be read.
    """
    child = machine.getpid()
    for pid, name in above():
        if name in names:
            return environ(child) or None if child != machine.getpid() else None
        child = pid
    return None


# What a process does


def catches(pid: int, signum: int) -> bool:
    """Whether a process has a handler for the signal (SigCgt in proc(5)), so that it survives."""
    mask = status(pid, "SigCgt")
    return bool(int(mask or "0", 16) >> (signum - 1) & 1)


def is_dying(pid: int) -> bool:
    """Whether a process ends already, which takes long where it dumps its core or has much memory.

    CoreDumping is of Linux 4.15; the flags are in include/linux/sched.h.
    """
    text = (read(pid, "stat") or "") if is_proc_ours() else ""
    _, *fields = text.rpartition(") ")[2].split() or [""]  # from number 4 on
    flags, threads = (int(fields[n - 4]) for n in (9, 20)) if fields else (0, 0)
    is_exiting = flags & PF_EXITING and threads == 1  # its first thread may end before others
    return bool(flags & PF_SIGNALED or is_exiting) or status(pid, "CoreDumping") == "1"


def is_held(pid: int) -> bool:
    """Whether a debugger has stopped the process."""
    return (status(pid, "State") or "").startswith("t")


def tracer(pid: int) -> int:
    """The pid of what traces the process or one of its threads; 0: nothing that can be seen."""
    threads = sysfs.names(f"/proc/{pid}/task") if is_proc_ours() else []
    tracers = (int(status(f"{pid}/task/{each}", "TracerPid") or 0) for each in threads)
    return next(filter(None, tracers), 0)


def status(process: int | str, key: str) -> str | None:
    """What the status file of PID, or of PID/task/TID, says; None: nothing, or not of ours."""
    return sysfs.fields(f"/proc/{process}/status", ":").get(key) if is_proc_ours() else None


def open_fds() -> list[int]:
    """The descriptors of this process."""
    try:
        candidates = [int(name) for name in machine.listdir("/dev/fd")]
    except OSError:  # there is no /proc
        candidates = [*range(machine.sysconf("SC_OPEN_MAX"))]
    fds = []
    for fd in candidates:
        try:
            machine.fstat(fd)
        except OSError:
            continue  # the one that listed the directory
        fds.append(fd)
    return fds


def _names(directory: str) -> list[str]:
    """What is in a directory; none where it is gone."""
    try:
        return machine.listdir(directory)
    except OSError as error:
        _check(error)
        return []


def _check(error: OSError) -> None:
    """Raise the error again where it is a shortage, and does not mean that a process has ended.

    A guard that cannot look fails then, and the launcher, which has descriptors of its own, looks.
    """
    if error.errno in SHORTAGES:
        raise error

"""Find the processes that a launch has started, and end them.

The first means is descent: the guard (or the launcher, once the guard is gone) is a subreaper, so
whatever a worker starts stays below it, setsid and double fork included. The second means is the
mark that each worker has in its environment and that its children inherit: it tells whose orphan
an orphan is, and finds all of them where there is no subreaper.

A pid is only a number, and another process may get it between a look and a signal. So a process is
known by pid and start time; it is signalled through a pidfd, opened before the last look.

The numbers in /proc are those of the PID namespace that it was mounted in. Where that is not ours,
or nothing is mounted, or a process is hidden (hidepid), only our own children can be known: by
asking waitid(2). That is enough in the end: what is below a child that is killed becomes our child.

Sources: proc(5); pid_namespaces(7); Documentation/filesystems/proc.rst, 3.7 on the `children`
files, which need CONFIG_PROC_CHILDREN and are replaced by a walk through /proc where they are
missing.
"""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress
from functools import cache

from spawnlaunch.records import NamedTuple
from spawnlaunch.run import kernel, signals
from spawnlaunch.run.environment import MARK
from spawnlaunch.world.ancestors import are_numbers_ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable

SHORTAGES = frozenset({12, 23, 24})  # ENOMEM, ENFILE, EMFILE (errno(3); one module less to import)
EXEC_S = 0.5  # in which a process that begins another program has its environment
MOST_PIDS = 1 << 22  # PID_MAX_LIMIT of the kernel's include/linux/threads.h


def is_proc_ours() -> bool:
    """Whether process N is what /proc/N shows."""
    return _is_proc_ours(os.getpid())  # each fork for itself: it may be in a namespace of its own


@cache
def _is_proc_ours(pid: int) -> bool:
    """By chance a process may have one number in two namespaces; NSpid lists both (proc(5))."""
    if not are_numbers_ours():
        return False
    numbers = _status(pid, "NSpid")  # since Linux 4.1
    return numbers is None or len(numbers.split()) == 1


class Process(NamedTuple):
    """What /proc/PID/stat says that does not change, or tells whose process it is."""

    pid: int
    dead: bool  # a zombie, or about to be one; not if only its first thread has ended
    parent: int
    group: int
    session: int
    start: int  # clock ticks since boot


def look(pid: int) -> Process | None:
    """The process of that number; None where there is none, or none to be seen."""
    try:
        if not is_proc_ours():
            return _look_at_child(pid)
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError as error:
        _check(error)
        return _look_at_child(pid)
    # The name, in parentheses, may hold spaces and parentheses of its own.
    fields = text.rpartition(b") ")[2].split()
    parent, group, session, threads, start = (int(fields[n - 3]) for n in (4, 5, 6, 20, 22))
    return Process(pid, fields[0] in (b"Z", b"X") and threads <= 1, parent, group, session, start)


def _look_at_child(pid: int) -> Process | None:
    """The same of a child of this process, without /proc.

    Its start is not known, nor needed: its number is its own until it is reaped.
    """
    if not hasattr(os, "waitid"):
        return None
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        group, session = os.getpgid(pid), os.getsid(pid)
        return Process(pid, ended is not None, os.getpid(), group, session, start=0)
    except OSError:
        return None


def children(pid: int) -> list[Process]:
    """The children of a process, zombies included."""
    return [child for child in map(look, child_pids(pid)) if child and child.parent == pid]


def child_pids(pid: int) -> list[int]:
    """The same, by number only: they stay what they are where the process is this one."""
    if not is_proc_ours():
        return _own_pids() if pid == os.getpid() else []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError as error:
        _check(error)
        return []
    pids: list[int] = []
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                pids.extend(map(int, file.read().split()))
        except FileNotFoundError:
            if os.path.exists(f"/proc/{pid}/task/{thread}/stat"):
                return [process.pid for process in everything() if process.parent == pid]
        except OSError as error:
            _check(error)  # else the thread has ended
    return pids


def _check(error: OSError) -> None:
    """Raise an error again that does not mean that somebody has ended: what we look for is there.

    Whoever cannot look fails, and leaves the search to the launcher, which has files of its own.
    """
    if error.errno in SHORTAGES:
        raise error


def _own_pids() -> list[int]:
    """The numbers of our children, by trying: all numbers that have been given since our own.

    If there is none among these, numbers have started anew from below; to try all takes seconds.
    """
    if not (hasattr(os, "waitid") and kernel.has_children()):
        return []
    given = range(os.getpid() + 1, _newest_pid())
    return [*filter(_look_at_child, given)] or [*filter(_look_at_child, range(2, MOST_PIDS))]


def _newest_pid() -> int:
    """The number that a process gets which is started now; 0 where there can be none."""
    try:
        pid = os.fork()
    except OSError:
        return 0
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


def everything() -> list[Process]:
    """Every process that can be seen."""
    if not is_proc_ours():
        return []
    try:
        names = os.listdir("/proc")
    except OSError as error:
        _check(error)
        return []
    return [process for process in map(look, map(int, filter(str.isdigit, names))) if process]


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


def mark_of(pid: int) -> str | None:
    """The mark in the environment that a process was started with; None: none, or not ours to see.

    A child that has not called exec shows its parent's.
    """
    if not is_proc_ours():
        return None
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return None
    prefix = f"{MARK}=".encode()
    values = [entry[len(prefix) :] for entry in variables if entry.startswith(prefix)]
    return values[0].decode(errors="replace") if values else None


def catches(pid: int, signum: int) -> bool:
    """Whether a process has a handler for the signal (SigCgt in proc(5)), so that it survives."""
    mask = _status(pid, "SigCgt") if is_proc_ours() else None
    return bool(int(mask or "0", 16) >> (signum - 1) & 1)


def is_held(pid: int) -> bool:
    """Whether a debugger has stopped the process."""
    state = _status(pid, "State") if is_proc_ours() else None
    return (state or "").startswith("t")


def _status(pid: int, key: str) -> str | None:
    """What /proc/PID/status says of it; None: nothing."""
    try:
        with open(f"/proc/{pid}/status", errors="replace") as file:
            lines = (line.partition(":") for line in file)
            return next((value.strip() for name, _, value in lines if name == key), None)
    except OSError:
        return None


def marked(run: str) -> list[Process]:
    """All living processes that bear the mark of the run."""
    return [
        process
        for process in everything()
        if not process.dead and (mark_of(process.pid) or "").startswith(f"{run}.")
    ]


def is_alive(process: Process) -> bool:
    """Whether a process that was looked at is still there."""
    now = look(process.pid)
    return now is not None and now.start == process.start and not now.dead


def kill(processes: Iterable[Process]) -> None:
    """SIGKILL for each process."""
    send(signal.SIGKILL, processes)


def kill_groups(processes: Iterable[Process]) -> None:
    """SIGKILL for the groups of processes, which are in sessions of ours.

    A chain of processes, each of which starts the next and ends, is faster than a look. A group is
    signalled as one: fork(2) gives no child to a process that is to die.
    """
    own = os.getsid(0)
    groups = {process.group for process in processes if process.session != own}
    for group in groups - {0, 1, os.getpgrp()}:  # killpg(2) means others by 0 and 1
        signals.send_group(group, signal.SIGKILL)


def send(signum: int, processes: Iterable[Process]) -> None:
    """Signal each process that is still the one that was looked at."""
    for process in processes:
        if process.dead:
            continue
        fd = kernel.open_pidfd(process.pid)
        now = look(process.pid)
        if now and now.start == process.start:
            if fd is None:
                _send_by_number(signum, process.pid)
            else:
                kernel.signal_pidfd(fd, signum)
        if fd is not None:
            os.close(fd)


def _send_by_number(signum: int, pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signum)


def reap(pids: Iterable[int]) -> None:
    """Reap those of our children that are zombies."""
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def reap_all_but(kept: Container[int]) -> None:
    """Reap zombies without looking for them, until one comes that somebody else is to reap."""
    with suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid in kept:
                return
            os.waitpid(ended.si_pid, 0)


class Tree:
    """The processes below this one, of which some are workers and the others are what they left.

    `foreign` are children that this process had before the launch: they and what they start are
    left alone.
    """

    def __init__(self, run: str, adopts: bool, foreign: Iterable[Process] = ()) -> None:
        self.kept: set[int] = set()  # children that are not ended, nor what they start
        self._run = run
        self._adopts = adopts
        self._foreign = frozenset((process.pid, process.start) for process in foreign)

    def clear(self, kept: Container[int], ranks: Collection[int], ended: set[int]) -> bool:
        """Kill what workers that have ended have left, and reap what has died of it.

        `kept` are pids of children that are not touched, `ranks` those that run, and `ended` the
        sessions of former workers. As long as anybody is in a session, no other process gets its
        number; so one that is empty is taken out of `ended`.
        The result is whether there is an orphan that nobody seems to have left.
        """
        if self._adopts and not is_proc_ours():
            reap_all_but(kept)  # to find those that live takes long, and is left for the end
            return False
        adopted = [pid for pid in child_pids(os.getpid()) if pid not in kept]
        running = set(map(str, ranks))
        orphans = [orphan for orphan in map(look, adopted) if orphan and not orphan.dead]
        left = [orphan for orphan in orphans if self._is_left(orphan, running, ended)]
        kill(below(left))
        reap(adopted)
        if not self._adopts:
            kill(process for process in marked(self._run)
                 if process.pid not in kept and self._is_left(process, running, ended))  # fmt: skip
        ended.intersection_update({orphan.session for orphan in orphans})
        return len(orphans) > len(left)

    def kill_below(self, pids: Iterable[int]) -> None:
        """SIGKILL for children of this process, and for all that is below them."""
        kill(below(filter(None, map(look, pids))))

    def _is_left(self, process: Process, running: set[str], ended: Container[int]) -> bool:
        """Whether a process belongs to a worker that has ended.

        One that has given up session, environment and parents alike cannot be told from the
        business of a running worker, and stays until no worker is running.
        """
        if not running:
            return True
        run, _, rank = (mark_of(process.pid) or "").rpartition(".")
        return rank not in running if run == self._run else process.session in ended

    def end(self, patience_s: float) -> list[Process]:
        """Kill everything of the run that is left; the result is what did not die in that time.

        What is killed may just have started something, so this looks again until nothing is found.
        """
        deadline = time.monotonic() + patience_s
        while left := self._living():
            if time.monotonic() > deadline:
                return left
            kill(left)
            kill_groups(left)
            _await_deaths(left, at_most_s=0.02)
        return []

    def _living(self) -> list[Process]:
        orphans = self._orphans()
        if self._foreign:
            # Orphans of the children that were there before come to us too.
            orphans = [orphan for orphan in orphans if self._is_ours(orphan)]
        found = below(orphans)
        if not self._adopts:
            found += marked(self._run)
        return [process for process in found if not process.dead]

    def _orphans(self) -> list[Process]:
        """Our children that live.

        Whoever ends hands on its children to us, perhaps after the list was read: a look at which
        somebody had ended is repeated (but for one whom a debugger keeps from being reaped).
        """
        ended: set[int] = set()
        while kernel.has_children():
            pids = [pid for pid in child_pids(os.getpid()) if pid not in self.kept]
            reap(pids)
            living = [process for process in map(look, pids) if process and not process.dead]
            before, ended = ended, set(pids).difference(process.pid for process in living)
            if ended <= before:
                return living
        return []

    def _is_ours(self, process: Process) -> bool:
        if (process.pid, process.start) in self._foreign:
            return False
        family = below([process])
        deadline = time.monotonic() + EXEC_S
        while any(_shows_nothing(one) for one in family) and time.monotonic() < deadline:
            time.sleep(EXEC_S / 10)
        return any((mark_of(one.pid) or "").startswith(f"{self._run}.") for one in family)


def _shows_nothing(process: Process) -> bool:
    """Whether it has no environment, as a process has for a moment in execve(2)."""
    try:
        with open(f"/proc/{process.pid}/environ", "rb") as file:
            return not (process.dead or file.read(1))
    except OSError:
        return False


def _await_deaths(processes: Iterable[Process], at_most_s: float) -> None:
    """Wait until one of the processes has ended."""
    fds = [fd for fd in (kernel.open_pidfd(process.pid) for process in processes) if fd is not None]
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    poller.poll(at_most_s * 1000)
    for fd in fds:
        os.close(fd)

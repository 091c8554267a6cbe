"""Find the processes that a launch has started, and end them.

The first means is descent: the guard (or the launcher, once the guard is gone) is a subreaper, so
whatever a worker starts stays below it, setsid and double fork included. The second means is the
mark that each worker has in its environment and that its children inherit: it tells whose orphan
an orphan is, and finds all of them where there is no subreaper.

A pid is only a number, and another process may get it between a look and a signal. So a process is
known by pid and start time; it is signalled through a pidfd, opened before the last look.

Sources: proc(5); Documentation/filesystems/proc.rst, 3.7 on the `children` files, which need
CONFIG_PROC_CHILDREN and are replaced by a walk through /proc where they are missing.
"""

import os
import select
import signal
import time
from collections.abc import Collection, Container, Iterable
from contextlib import suppress
from typing import NamedTuple

from spawnlaunch.run import kernel
from spawnlaunch.run.environment import MARK


class Process(NamedTuple):
    """What /proc/PID/stat says that does not change, or tells whose process it is."""

    pid: int
    dead: bool  # a zombie, or about to be one; not if only its first thread has ended
    parent: int
    session: int
    start: int  # clock ticks since boot


def look(pid: int) -> Process | None:
    """The process of that number; None where there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The name, in parentheses, may hold spaces and parentheses of its own.
    fields = text.rpartition(b") ")[2].split()
    parent, session, threads, start = (int(fields[n - 3]) for n in (4, 6, 20, 22))
    return Process(pid, fields[0] in (b"Z", b"X") and threads <= 1, parent, session, start)


def children(pid: int) -> list[Process]:
    """The children of a process, zombies included."""
    return [child for child in map(look, child_pids(pid)) if child and child.parent == pid]


def child_pids(pid: int) -> list[int]:
    """The same, by number only: they stay what they are where the process is this one."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    pids: list[int] = []
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                pids.extend(map(int, file.read().split()))
        except FileNotFoundError:
            if os.path.exists(f"/proc/{pid}/task/{thread}/stat"):
                return [process.pid for process in everything() if process.parent == pid]
        except OSError:
            pass  # the thread has ended
    return pids


def everything() -> list[Process]:
    """Every process that can be seen."""
    try:
        names = os.listdir("/proc")
    except OSError:
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
    try:
        with open(f"/proc/{pid}/status") as file:
            masks = [line.split()[1] for line in file if line.startswith("SigCgt:")]
    except OSError:
        return False
    return bool(masks) and bool(int(masks[0], 16) >> (signum - 1) & 1)


def marked(run: str) -> list[Process]:
    """All living processes that bear the mark of the run."""
    return [
        process
        for process in everything()
        if not process.dead and (mark_of(process.pid) or "").startswith(f"{run}.")
    ]


def kill(processes: Iterable[Process]) -> None:
    """SIGKILL for each process."""
    send(signal.SIGKILL, processes)


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
    """Take leave of those of our children that are zombies."""
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


class Tree:
    """The processes below this one, of which some are workers and the others are what they left.

    `foreign` are children that this process had before the launch: they and what they start are
    left alone.
    """

    def __init__(self, run: str, adopts: bool, foreign: Iterable[int] = ()) -> None:
        self._run = run
        self._adopts = adopts
        self._foreign = frozenset(foreign)

    def clear(self, kept: Container[int], ranks: Collection[int], ended: Container[int]) -> bool:
        """Kill what workers that have ended have left, and reap what has died of it.

        `kept` are pids of children that are not touched, `ranks` those that run, and `ended` the
        pids of former workers: none is given to another process while anybody is in its session.
        The result is whether there is an orphan that nobody seems to have left.
        """
        adopted = [pid for pid in child_pids(os.getpid()) if pid not in kept]
        running = set(map(str, ranks))
        orphans = [orphan for orphan in map(look, adopted) if orphan and not orphan.dead]
        left = [orphan for orphan in orphans if self._is_left(orphan, running, ended)]
        kill(below(left))
        reap(adopted)
        if not self._adopts:
            kill(process for process in marked(self._run)
                 if process.pid not in kept and self._is_left(process, running, ended))  # fmt: skip
        return len(orphans) > len(left)

    def kill_below(self, pids: Iterable[int]) -> None:
        """SIGKILL for children of this process, and for all that is below them."""
        kill(below(filter(None, map(look, pids))))

    def _is_left(self, process: Process, running: set[str], ended: Container[int]) -> bool:
        """Whether a process belongs to a worker that has ended.

        One that has given up session, environment and parents alike cannot be told from the
        business of a running worker, and stays until no worker is running.
        """
        if process.session in ended:
            return True
        run, _, rank = (mark_of(process.pid) or "").rpartition(".")
        return not running or (run == self._run and rank not in running)

    def end(self, patience_s: float) -> list[Process]:
        """Kill everything of the run that is left; the result is what did not die in that time.

        What is killed may just have started something, so this looks again until nothing is found.
        """
        deadline = time.monotonic() + patience_s
        while left := self._living():
            if time.monotonic() > deadline:
                return left
            kill(left)
            _await_deaths(left, at_most_s=0.02)
        return []

    def _living(self) -> list[Process]:
        own = [pid for pid in child_pids(os.getpid()) if pid not in self._foreign]
        reap(own)
        orphans = [process for process in map(look, own) if process]
        if self._foreign:
            # Orphans of the children that were there before come to us too.
            orphans = [orphan for orphan in orphans if self._is_ours(orphan)]
        found = below(orphans)
        if not self._adopts:
            found += marked(self._run)
        return [process for process in found if not process.dead]

    def _is_ours(self, process: Process) -> bool:
        return any((mark_of(one.pid) or "").startswith(f"{self._run}.") for one in below([process]))


def _await_deaths(processes: Iterable[Process], at_most_s: float) -> None:
    """Wait until one of the processes has ended."""
    fds = [fd for fd in (kernel.open_pidfd(process.pid) for process in processes) if fd is not None]
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    poller.poll(at_most_s * 1000)
    for fd in fds:
        os.close(fd)

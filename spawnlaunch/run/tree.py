"""The processes that a launch has started: find them, end them, and say why one stays.

The first means is descent: the guard (or the launcher, once the guard is gone) is a subreaper, so
whatever a worker starts stays below it, setsid and double fork included. The second means is the
mark that each worker has in its environment and that its children inherit: it tells whose orphan
an orphan is, and finds all of them where there is no subreaper.

A pid is only a number, and another process may get it between a look and a signal. So a process is
known by pid and start time; it is signalled through a pidfd, opened before the last look.
"""

from __future__ import annotations

import os
import select
import time
from contextlib import suppress

from spawnlaunch.node import kernel, proc
from spawnlaunch.node.proc import Process, below, look
from spawnlaunch.run import signals
from spawnlaunch.run.decisions import STUCK_S
from spawnlaunch.run.environment import MARK
from spawnlaunch.run.signals import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator

EXEC_S = 0.5  # in which a process that begins another program has its environment


def kill_groups(processes: Iterable[Process]) -> None:
    """SIGKILL for the process groups of these processes, which are in sessions of ours.

    Where each process starts another and ends, all may be gone when they have been looked at one
    by one. A group is signalled at once: fork(2) gives no child to a process that is to die.
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
                signals.send(process.pid, signum)
            else:
                kernel.signal_pidfd(fd, signum)
        if fd is not None:
            os.close(fd)


def reap(pids: Iterable[int]) -> None:
    """Reap those of our children that are zombies."""
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def reap_all_but(kept: Container[int]) -> None:
    """Reap zombies as the kernel names them, until one is in `kept`: somebody else reaps that."""
    with suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid in kept:
                return
            os.waitpid(ended.si_pid, 0)


def mark_of(pid: int) -> str:
    """The mark in the environment that a process was started with; "": none, or not ours to see."""
    return (proc.environ(pid) or {}).get(MARK, "")


def marked(run: str) -> list[Process]:
    """All living processes that bear the mark of the run."""
    living = (process for process in proc.everything() if not process.dead)
    return [process for process in living if mark_of(process.pid).startswith(f"{run}.")]


class Tree:
    """The processes below this one, of which some are workers and the others are what they left.

    `foreign` are children that this process had before the launch: they and what they start are
    left alone.
    """

    def __init__(self, run: str, adopts: bool, foreign: Iterable[Process] = ()) -> None:
        self.kept: set[int] = set()  # children that are not ended, nor what they start
        self.patience_s = STUCK_S  # with what the workers have left
        self._run = run
        self._adopts = adopts
        self._foreign = frozenset((process.pid, process.start) for process in foreign)

    def kill_orphans(self, kept: Container[int], ranks: Collection[int], ended: set[int]) -> bool:
        """Kill what workers that have ended have left, and reap what has died of it.

        `kept` are pids of children that are not touched, `ranks` those that run, and `ended` the
        sessions of former workers. As long as anybody is in a session, no other process gets its
        number; so one that is empty is taken out of `ended`.
        The result is whether there is an orphan that nobody seems to have left.
        """
        if self._adopts and not proc.is_proc_ours():
            reap_all_but(kept)  # to find those that live takes long, and is left for the end
            return False
        adopted = [pid for pid in proc.child_pids(os.getpid()) if pid not in kept]
        running = set(map(str, ranks))
        orphans = [orphan for orphan in map(look, adopted) if orphan and not orphan.dead]
        left = [orphan for orphan in orphans if self._is_left(orphan, running, ended)]
        if left:
            send(signal.SIGKILL, below(left))
        reap(adopted)
        is_nobodys = len(orphans) > len(left)
        if not self._adopts:
            theirs = (process for process in marked(self._run) if process.pid not in kept)
            left = [process for process in theirs if self._is_left(process, running, ended)]
            send(signal.SIGKILL, left)
        ended.intersection_update({orphan.session for orphan in orphans})
        return is_nobodys

    def kill_below(self, pids: Iterable[int]) -> None:
        """SIGKILL for children of this process, and for all that is below them."""
        send(signal.SIGKILL, below(filter(None, map(look, pids))))

    def _is_left(self, process: Process, running: set[str], ended: Container[int]) -> bool:
        """Whether a process belongs to a worker that has ended.

        One that has given up session, environment and parents alike cannot be told from the
        business of a running worker, and stays until no worker is running.
        """
        if not running:
            return True
        run, _, rank = mark_of(process.pid).rpartition(".")
        return rank not in running if run == self._run else process.session in ended

    def end(self, patience_s: float) -> list[Process]:
        """Kill everything of the run that is left; the result is what did not die in that time.

        What is killed may just have started something, so this looks again until nothing is found.
        """
        deadline = time.monotonic() + patience_s
        while left := self.living():
            if time.monotonic() > deadline:
                return left
            send(signal.SIGKILL, left)
            kill_groups(left)
            _await_deaths(left, at_most_s=0.02)
        return []

    def living(self) -> list[Process]:
        """All of the run that is left."""
        orphans = self._orphans()
        if self._foreign:
            # Orphans of the children that were there before come to us too.
            orphans = [orphan for orphan in orphans if self._is_ours(orphan)]
        found = below(orphans) if orphans else []
        if not self._adopts:
            found += marked(self._run)
        return [process for process in found if not process.dead]

    def _orphans(self) -> list[Process]:
        """Our children that live.

        Whoever ends hands on its children to us, perhaps after the list was read: a look at which
        somebody had ended is repeated (but for one whom a debugger keeps from being reaped).
        """
        ended: set[int] = set()
        while proc.has_children():
            pids = [pid for pid in proc.child_pids(os.getpid()) if pid not in self.kept]
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
        # For a moment in execve(2) a process has no environment.
        while any(not one.dead and proc.read(one.pid, "environ") == "" for one in family):
            if time.monotonic() > deadline:
                break
            time.sleep(EXEC_S / 10)
        return any(mark_of(one.pid).startswith(f"{self._run}.") for one in family)


def _await_deaths(processes: Iterable[Process], at_most_s: float) -> None:
    """Wait until one of the processes has ended."""
    opened = (kernel.open_pidfd(process.pid) for process in processes)
    fds = [fd for fd in opened if fd is not None]
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    poller.poll(at_most_s * 1000)
    for fd in fds:
        os.close(fd)


# Why a process does not end that SIGKILL was sent to: one of another user is not ours to signal
# (kill(2)). One that is traced ends only once its tracer has waited for it (ptrace(2), "Death under
# ptrace"), and a tracer may be stopped itself.


def why_it_stays(pid: int) -> str:
    """In words; "": it may end by itself, as soon as the kernel lets it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        uid = proc.status(pid, "Uid")
        whom = _user(int(uid.split()[0])) if uid else "another user"
        return f"it runs as {whom}, whom {_user(os.geteuid())} may not signal"
    return _held(pid)


def named(pid: int) -> str:
    """The pid, and the name of its program where that can be seen."""
    command = (proc.read(pid, "comm") or "").strip() if proc.is_proc_ours() else ""
    return f"pid {pid} ({command})" if command else f"pid {pid}"


def exit_code(zombie: int) -> int:
    """How a process ended that nobody can wait for, as waitpid(2) has it. Raises OSError.

    It is the last field of /proc/PID/stat (proc(5)), and 0 for one that we may not look into.
    """
    return int(proc.stat(str(zombie))[-1]) if proc.is_proc_ours() else 0


def not_reaped(zombies: Iterable[int], patience_s: float) -> Iterator[str]:
    """A line for each child that has ended and cannot be reaped in that time (seconds, for all)."""
    deadline = time.monotonic() + patience_s
    for pid in zombies:
        with suppress(ChildProcessError):  # somebody has reaped it
            while not os.waitpid(pid, os.WNOHANG)[0]:
                if time.monotonic() > deadline:
                    yield f"{named(pid)} has ended, but {_held(pid) or 'cannot be reaped'}"
                    break
                time.sleep(0.01)


def _held(pid: int) -> str:
    tracer = proc.tracer(pid)
    return f"it is held by its tracer, {named(tracer)}" if tracer else ""


def _user(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"

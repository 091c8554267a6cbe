"""The processes that a launch has started: how they are found and ended, and why one stays.

The first means is descent: the guard (or the launcher, once the guard is gone) is a subreaper, so
whatever a worker starts stays below it, setsid and double fork included. The second means is the
mark that each worker has in its environment and that its children inherit: it tells which worker an
orphan comes from, and finds all of them where there is no subreaper.

Processes that workers with status 0 have left, such as an upload, have the grace to end:

after a second      it is named
after the grace     it is told to end (SIGTERM)
TERM_GRACE_S later  it is killed; what a failed worker leaves is killed at once

A process may stay in spite of SIGKILL. We may not signal a process of another user (kill(2)). A
traced process ends only once its tracer has waited for it (ptrace(2), "Death under ptrace"), and a
tracer may be stopped itself.

A pid is only a number, and another process may get it between a look and a signal. So a process is
known by pid and start time; it is signalled through a pidfd, opened before the last look.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Container, Iterable
from contextlib import suppress

from spawnlaunch.base import events, machine, say, signals
from spawnlaunch.base.signals import signal
from spawnlaunch.node import proc
from spawnlaunch.outcome import failures
from spawnlaunch.workers import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    Look = Callable[[float], bool]  # for so many seconds; False: there is a cause to end the launch

DEATH_S = 0.02  # until the next look at whether processes have died
NAMED_AFTER_S = 1.0
TERM_GRACE_S = 5.0
LOOK_S = 0.05  # until the next look at what is left
MOST_NAMED = 5
EXEC_S = 0.5  # in which a process that begins another program has its environment


def kill_groups(processes: Iterable[proc.Process]) -> None:
    """Send SIGKILL to the process groups of these processes, which are in sessions of ours.

    Where each process starts another and ends, all may be gone before each is signalled alone. A
    group is signalled as a whole: fork(2) gives no child to a process that is to die.
    """
    try:
        session = machine.getsid(0)
    except OSError:  # refused: they are found one by one
        return
    groups = {process.group for process in processes if process.session != session}
    for group in groups - {0, 1, machine.getpgrp()}:  # killpg(2) means others by 0 and 1
        signals.send(group, signal.SIGKILL, is_group=True)


def send(signum: int, processes: Iterable[proc.Process]) -> None:
    """Signal each process that still has its pid."""
    for process in processes:
        if process.dead:
            continue
        fd = machine.open_pidfd(process.pid)
        now = proc.look(process.pid)
        is_same = now and now.start == process.start
        if is_same and (fd is None or not machine.signal_pidfd(fd, signum)):
            signals.send(process.pid, signum)
        if fd is not None:
            machine.close(fd)


def reap(pids: Iterable[int]) -> None:
    """Reap those of our children that are zombies."""
    for pid in pids:
        with suppress(ChildProcessError):
            machine.waitpid(pid, os.WNOHANG)


def reap_all_but(spared: Container[int]) -> None:
    """Reap zombies as the kernel names them, until one is in `spared`: another part reaps that."""
    with suppress(OSError):
        while ended := machine.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid in spared:
                return
            machine.waitpid(ended.si_pid, 0)


def mark_of(pid: int) -> str:
    """The mark in a process's first environment; "": there is none, or we may not read it."""
    return (proc.environ(pid) or {}).get(environment.MARK, "")


def marked(run: str) -> list[proc.Process]:
    """All living processes that have the mark of the run."""
    living = (process for process in proc.everything() if not process.dead)
    return [process for process in living if mark_of(process.pid).startswith(f"{run}.")]


class Tree:
    """The processes below this one: workers, and processes that workers have left.

    `foreign` are children that this process had before the launch: they and the processes that
    they start are left alone.
    """

    def __init__(self, run: str, adopts: bool, foreign: Iterable[proc.Process] = ()) -> None:
        self.spared: set[int] = set()  # children that are spared, with all that they start
        self.patience_s = failures.STUCK_S  # with the processes that workers have left
        self._run = run
        self.adopts = adopts
        self._foreign = frozenset((process.pid, process.start) for process in foreign)

    def kill_orphans(self, spared: Container[int], ranks: Collection[int], ended: set[int]) -> bool:
        """Kill the processes that ended workers have left, and reap those that died of it.

        `spared` are pids of children that are not touched, `ranks` those that run, and `ended` the
        sessions of former workers. As long as any process is in a session, no other process gets
        its number; so a session that is empty is taken out of `ended`.
        The result is whether there is an orphan that belongs to no worker that can be seen.
        """
        if self.adopts and not proc.is_proc_usable():
            reap_all_but(spared)  # to find those that live takes long, and is left for the end
            return False
        adopted = [pid for pid in proc.child_pids(machine.getpid()) if pid not in spared]
        running = set(map(str, ranks))
        orphans = [orphan for orphan in map(proc.look, adopted) if orphan and not orphan.dead]
        killed = [orphan for orphan in orphans if self._is_orphan(orphan, running, ended)]
        if killed:
            send(signal.SIGKILL, proc.below(killed))
        reap(adopted)
        is_nobodys = len(orphans) > len(killed)
        if not self.adopts:
            others = [process for process in marked(self._run) if process.pid not in spared]
            send(signal.SIGKILL, [each for each in others if self._is_orphan(each, running, ended)])
        ended.intersection_update({orphan.session for orphan in orphans})
        return is_nobodys

    def kill_below(self, pids: Iterable[int]) -> None:
        """Send SIGKILL to children of this process, and to all processes below them."""
        send(signal.SIGKILL, proc.below(filter(None, map(proc.look, pids))))

    def _is_orphan(self, process: proc.Process, running: set[str], ended: Container[int]) -> bool:
        """Whether a process belongs to a worker that has ended.

        A process that has given up session, environment and parents cannot be told from those of a
        running worker, and stays until no worker is running.
        """
        if not running:
            return True
        run, _, rank = mark_of(process.pid).rpartition(".")
        return rank not in running if run == self._run else process.session in ended

    def end(self, patience_s: float) -> list[proc.Process]:
        """Kill all processes of the run that are left; return those that live after `patience_s`.

        A killed process may just have started another, so this looks again until none is found.
        """
        loop, is_over = events.Loop(has_order=False), False
        deadline = machine.running_s() + patience_s
        while living := self.living():
            send(signal.SIGKILL, living)
            kill_groups(living)
            if is_over:
                return living
            _await_deaths(living, loop)
            is_over = machine.running_s() > deadline
        return []

    def living(self) -> list[proc.Process]:
        """All processes of the run that are left."""
        orphans = self._orphans()
        if self._foreign:
            # Orphans of the children that were there before come to us too.
            orphans = [orphan for orphan in orphans if self._is_of_this_run(orphan)]
        processes = proc.below(orphans) if orphans else []
        if not self.adopts:
            processes += marked(self._run)
        return [process for process in processes if not process.dead]

    def _orphans(self) -> list[proc.Process]:
        """Our children that live.

        A process that ends hands its children on to us, perhaps after the list was read. So a look
        at which a process had ended is repeated (unless a debugger keeps that process from being
        reaped).
        """
        ended: set[int] = set()
        while proc.has_children():
            pids = [pid for pid in proc.child_pids(machine.getpid()) if pid not in self.spared]
            reap(pids)
            living = [process for process in map(proc.look, pids) if process and not process.dead]
            before, ended = ended, set(pids).difference(process.pid for process in living)
            if ended <= before:
                return living
        return []

    def _is_of_this_run(self, process: proc.Process) -> bool:
        if (process.pid, process.start) in self._foreign:
            return False
        family = proc.below([process])
        deadline = machine.running_s() + EXEC_S
        # For a moment in execve(2) a process has no environment.
        while any(
            not process.dead and proc.read(process.pid, "environ") == "" for process in family
        ):
            if machine.running_s() > deadline:
                break
            events.patient_sleep(EXEC_S / 10)
        return any(mark_of(process.pid).startswith(f"{self._run}.") for process in family)

    def let_end(self, grace_s: float, look: Look, show: Callable[[Iterable[str]], object]) -> None:
        """Wait until the processes that workers have left end; the caller kills those that stay.

        A launch that is to end does not wait.
        """
        if not self._goes_on(look, min(NAMED_AFTER_S, grace_s)):
            return
        show([f"all workers have ended well, and left {self._names()}: "
              f"{grace_s:g} s (--grace) from now to end by themselves"])  # fmt: skip
        if not self._goes_on(look, grace_s - NAMED_AFTER_S):
            return
        show([f"{self._names()} gets SIGTERM: {grace_s:g} s are over"])
        send(signal.SIGTERM, self.living())
        if self._goes_on(look, min(TERM_GRACE_S, grace_s)):
            show([f"killing {self._names()}"])

    def _goes_on(self, look: Look, for_s: float) -> bool:
        """Whether such a process still runs after `for_s` seconds, and nothing ends the launch."""
        deadline, is_over = machine.running_s() + for_s, False
        while self.living():
            if is_over:
                return True
            if not look(LOOK_S):
                return False
            # Only now: `look` has taken a time in which this process could not run off the clock.
            is_over = machine.running_s() > deadline
        return False

    def _names(self) -> str:
        pids = sorted({process.pid for process in self.living()})
        return ", ".join(map(named, pids[:MOST_NAMED])) + ", ..." * (len(pids) > MOST_NAMED)

    def end_all(self) -> bool:
        """Kill all processes of the run that are left, and name those that do not die.

        True: all are gone.
        """
        pids = [process.pid for process in self.end(self.patience_s)]
        if pids:
            stuck = "it must be stuck in the kernel"
            say.say(f"could not kill {named(pid)}, which is left: "
                    f"{why_unkillable(pid) or stuck}" for pid in pids)  # fmt: skip
        return not pids


def _await_deaths(processes: Iterable[proc.Process], loop: events.Loop) -> None:
    """Wait until one of the processes has ended, but not for long."""
    fds = [fd for process in processes if (fd := machine.open_pidfd(process.pid)) is not None]
    for fd in fds:
        loop.watch(fd, lambda: None)
    loop.turn(DEATH_S)
    for fd in fds:
        loop.forget(fd)
        machine.close(fd)


def exit_code(zombie: int) -> int:
    """How a process ended that cannot be waited for, as waitpid(2) has it. Raises OSError.

    It is the last field of /proc/PID/stat (proc(5)), and 0 for a process that we may not look into.
    """
    return int(proc.stat(str(zombie))[-1]) if proc.is_proc_usable() else 0


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
    tracer = proc.tracer(pid)
    return f"it is held by its tracer, {named(tracer)}" if tracer else ""


def named(pid: int) -> str:
    """The pid, and the name of the program where it can be read."""
    command = (proc.read(pid, "comm") or "").strip() if proc.is_proc_usable() else ""
    return f"pid {pid} ({command})" if command else f"pid {pid}"

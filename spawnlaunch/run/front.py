"""The process that the user started: it takes signals, passes them on, and looks after its guard.

    launcher   the process that the user started
      guard    a subreaper in a group of its own; starts the workers and decides: see guard.py
        worker, worker, ...   several are in sessions of their own; they die with the guard

They watch each other. A launcher that dies, of whatever, closes the pipe to its guard, which kills
all processes below it. A guard that dies takes the workers with it (PR_SET_PDEATHSIG); their
children come to the launcher, a subreaper too, which kills them. So either one is enough.

A stopped guard is continued: by the launcher, and by the kernel if the launcher dies. A guard that
does not hear that the launch is to end is killed by the launcher; and if the launcher has died, a
timer ends it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from spawnlaunch import output
from spawnlaunch.base import cpuset, errors, events, machine, say, signals
from spawnlaunch.base.signals import signal
from spawnlaunch.node import proc
from spawnlaunch.outcome import endings, failures
from spawnlaunch.run import decisions, guard
from spawnlaunch.run.supervisor import ARE_YOU_THERE, TYPED, Supervisor
from spawnlaunch.run.tree import Tree, reap
from spawnlaunch.workers import files, launches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch.run.observer import Coordinator
    from spawnlaunch.run.supervisor import MakeObserver

# Open files of a worker in the guard, without those that its output is kept in: a pidfd, and a pipe
# of each stream. A launch is refused where it cannot have these; the soft limit is raised where the
# most of `Output.begin` would not fit.
LEAST_OF_A_WORKER = 3
OF_GUARD_OF_SINGLE_WORKER = 9  # a worker alone keeps our streams

MAX_ERRNO = 4095  # include/linux/err.h of the kernel


def run(
    launch: launches.Launch,
    workers: Sequence[launches.Worker],
    observers: Sequence[MakeObserver] = (),
    coordinator: type[Coordinator] | None = None,
) -> int:
    """Start the workers and see them to their end; the result is the exit status.

    `workers` are those of the first attempt (on several nodes only examples of them, as ranks are
    not agreed yet). Each of `observers` makes an observer in the guard; `coordinator`
    is the class of the one that decides on several nodes.
    The signals that end, stop or continue the launch stay blocked, and caught in other threads, so
    that none cuts in while the interpreter ends.
    Raises UsageError where the workers cannot all be watched, OSError where the system refuses what
    a launch needs; nothing is left then.
    """
    if launch.request.debug is not None:
        launch = _with_debugged_rank(launch, workers)
    _check_system(workers)
    watched = signals.watched()
    machine.pthread_sigmask(signal.SIG_BLOCK, watched)
    pipe = events.SignalPipe(watched)
    if not machine.IS_LINUX:
        # Without subreapers: no process ends the workers if this one is killed with SIGKILL.
        tree = Tree(launch.mark, adopts=False)
        supervisor = Supervisor(launch, tree, pipe, observers)
        supervisor.listen()
        return guard.carry_out(supervisor, workers, coordinator)
    foreign = proc.children(machine.getpid()) if proc.has_children() else ()
    reap(child.pid for child in foreign)  # those that ended before SIGCHLD was blocked
    adopts = machine.prctl(machine.PR_SET_CHILD_SUBREAPER, 1)
    tree = Tree(launch.mark, adopts=adopts, foreign=foreign)
    launcher_pipe_fd, to_guard_fd = machine.pipe()
    machine.set_blocking(to_guard_fd, False)
    inherited = guard.Inherited(machine.getpid(), launcher_pipe_fd, to_guard_fd, pipe)
    pid = machine.fork(partial(guard.run, launch, workers, observers, coordinator, inherited))
    machine.close(launcher_pipe_fd)
    try:
        watch = _Watch(pid, to_guard_fd, events.Ear(pipe), launch.grace_s)
        code = os.waitstatus_to_exitcode(watch.until_its_end())
        if code < 0:
            return _take_over(code, pid, tree, launch)
        if proc.has_children() and machine.getpid() != 1:  # all others end with PID 1
            tree.end(decisions.LAST_S)  # the guard has named those that it could not kill
        return code
    except OSError:
        machine.close(to_guard_fd)  # so it ends the workers
        with suppress(ChildProcessError):
            machine.waitpid(pid, 0)
        _take_over(-guard.SIGNAL_BY_GUARD_STATUS[os.EX_OSERR], pid, tree, launch)
        raise


def _with_debugged_rank(
    launch: launches.Launch, workers: Sequence[launches.Worker]
) -> launches.Launch:
    """Return the launch without its time limits, after printing what holds for --debug RANK.

    That rank has the terminal, as if it ran alone; the other ranks go on. Raises UsageError.
    """
    rank, size = launch.request.debug, launch.resolution.world.world_size
    if rank is None or rank >= size:
        raise errors.UsageError(
            f"--debug {rank}: there is no such rank; use one of {cpuset.format(range(size))}"
        )
    if all(worker.rank != rank for worker in workers):
        return launch  # it is on another node
    if not machine.isatty(0):
        raise errors.UsageError(
            f"--debug {rank}: stdin is not a terminal, so no input can come; start it in a "
            "terminal, through ssh with ssh -t"
        )
    say.say([
        f"--debug: rank {rank} has the terminal, Ctrl-C too; Ctrl-\\ ends the launch, and the "
        "launcher's time limits do not apply",
        "--debug: the other ranks wait in a collective for as long as their process group lets "
        "them (by default 10 minutes with NCCL, 30 with gloo); for longer write "
        "init_process_group(timeout=timedelta(hours=8))",
    ])  # fmt: skip
    return launch._replace(request=launch.request._replace(timeout_s=0.0, hang_timeout_s=0.0))


def _check_system(workers: Sequence[launches.Worker]) -> None:
    """Ask for all that a launch needs from the system, before there are workers to end.

    Raises OSError where the system refuses, and UsageError where the guard would run out of open
    files: it could end no worker.
    """
    for call in (machine.getpid, machine.getppid, machine.getpgrp, machine.geteuid):
        # These calls are "always successful", so the C library returns what a filter refuses as a
        # result, -errno; geteuid's is unsigned.
        number = -call() % (1 << 32)
        if 0 < number <= MAX_ERRNO:
            raise OSError(number, os.strerror(number), call.__name__)
    # These raise OSError where a filter refuses them. There is no such child, and signal 0 is none.
    with suppress(ChildProcessError):
        machine.waitpid(machine.getpid(), os.WNOHANG)
    machine.kill(machine.getpid(), 0)
    shown_files = sum(route.file is not None and route.shown for w in workers for route in w.routes)
    of_guard = output.OF_THE_GUARD if len(workers) > 1 else OF_GUARD_OF_SINGLE_WORKER
    needed = len(workers) * LEAST_OF_A_WORKER + shown_files + of_guard
    if needed > machine.sysconf("SC_OPEN_MAX"):
        _, most = machine.getrlimit()
        if needed <= most or most == machine.UNLIMITED:
            return
        n, remedy, subject = len(workers), "run ", "one worker needs"
        if n > 1:
            fits = max(1, (most - of_guard) * n // (needed - of_guard))
            remedy, subject = f"use --nproc {fits}, or raise the limit: ", f"{n} workers need"
        raise errors.UsageError(
            f"{subject} {needed} open files, and {most} are allowed; {remedy}ulimit -n {needed}"
        )


class _Watch:
    """The launcher's work while its guard runs: pass signals on, and check the guard at times."""

    def __init__(self, pid: int, to_guard_fd: int, ear: events.Ear, grace_s: float) -> None:
        """Prepare to watch the guard with this pid, which reads signals from `to_guard_fd`."""
        self._guard, self._to_guard_fd, self._ear, self._grace_s = pid, to_guard_fd, ear, grace_s
        self._status: int | None = None
        self._loop = events.Loop(has_order=False)
        self._look_at = failures.NEVER
        self._first_stop_signal = 0  # the first signal that means to end the job
        for fd in ear.fds:
            self._loop.watch(fd, self._read_signals)
        pidfd = machine.open_pidfd(pid)  # SIGCHLD may go to a thread that waits for it
        if pidfd is not None:
            self._loop.watch(pidfd, partial(self._on_guard_exit, pidfd))

    def until_its_end(self) -> int:
        """Wait for the end of the guard; the result is its status, as waitpid(2) has it."""
        self._look_in(decisions.STOPPED_S)
        while self._status is None:
            self._loop.turn()
        return self._status

    def _read_signals(self) -> None:
        for signum, is_typed in self._ear.read():
            if signum != signal.SIGCHLD:
                self._pass_on(signum, is_typed)
            if signum == signal.SIGCONT:  # the guard may be next
                self._look_in(decisions.STOPPED_S)
            elif signum in signals.STOP and not self._first_stop_signal:
                self._first_stop_signal = signum
                self._loop.alarm(self._check_that_guard_reads, self._grace_s + events.WATCHDOG_S)
        self._reap()
        if self._status is None and proc.is_stopped(self._guard):
            self._look_in(decisions.STOPPED_S)

    def _pass_on(self, signum: int, is_typed: bool) -> None:
        if is_typed and signum == signal.SIGTSTP and not _has_shell():
            machine.killpg(machine.getpgrp(), signal.SIGCONT)  # a worker may be stopped
            return
        with suppress(OSError):  # the guard may have ended, which we are about to hear
            machine.write(self._to_guard_fd, bytes([signum | TYPED if is_typed else signum]))
        if signum == signal.SIGTSTP:
            machine.kill(machine.getpid(), signal.SIGSTOP)

    def _on_guard_exit(self, pidfd: int) -> None:
        self._loop.forget(pidfd)  # it may be a debugger's to reap first: SIGCHLD tells later
        self._reap()

    def _reap(self) -> None:
        """Reap the children that have ended; all but the guard are orphans.

        They are left by children that were here before the launch or, where this is PID 1 of a
        container, by any other process that is started there.
        """
        pid = -1
        while self._status is None and pid:
            pid, status = machine.waitpid(-1, os.WNOHANG)
            if pid == self._guard:
                self._status = status

    def _look_in(self, after_s: float) -> None:
        """Check the guard `after_s` seconds from now, or at an earlier time that is already set."""
        at = machine.running_s() + after_s
        if at < self._look_at:
            self._look_at = at
            self._loop.alarm(self._set_going, after_s)

    def _set_going(self) -> None:
        """Continue the guard, if a signal has stopped it."""
        self._look_at, pid = failures.NEVER, self._guard
        if proc.is_stopped(pid):
            say.say([f"the guard (pid {pid}) was stopped: continued it"])
            machine.kill(pid, signal.SIGCONT)

    def _check_that_guard_reads(self) -> None:
        """Kill a guard that does not read its pipe: it would end no worker.

        A guard that reads gets something to read again and again, as it may be held up later. Where
        a debugger holds the guard, the kernel tells the debugger of its end first, and the debugger
        may not ask for it: so that guard is not waited for.
        """
        pid = self._guard
        if machine.size_of(self._to_guard_fd):
            debugged = " (a debugger holds it)" if proc.is_stopped_by_debugger(pid) else ""
            signal_name = failures.signal_name(self._first_stop_signal)
            say.say([f"the guard (pid {pid}) does not react to {signal_name}{debugged}: killing "
                     "it, and the workers"])  # fmt: skip
            machine.kill(pid, signal.SIGKILL)
            self._status = int(signal.SIGKILL)
            return
        with suppress(OSError):  # it has ended
            machine.write(self._to_guard_fd, bytes([ARE_YOU_THERE]))
        self._loop.alarm(self._check_that_guard_reads, 2 * events.WATCHDOG_S)


def _has_shell() -> bool:
    """Whether a process of our session above us could continue what Ctrl-Z stops.

    With ssh -t or docker run -it there is none. The kernel then stops no process ("orphaned process
    group" in setpgid(2)) but a worker of our group, which has the guard above it.
    """
    pid, group = machine.getppid(), machine.getpgrp()
    with suppress(OSError):
        while pid and machine.getpgid(pid) == group:
            pid = int(proc.stat(str(pid))[3])
        return pid > 0 and machine.getsid(pid) == machine.getsid(0)
    return False


def _take_over(code: int, pid: int, tree: Tree, launch: launches.Launch) -> int:
    """End what a guard has left that was killed or had a fault, and return the exit status."""
    tree.end_all()
    files.remove_scratch(launch.scratch)
    cause = failures.Cause("guard", code=code, words=failures.end_in_words(code), pid=pid)
    for status, signum in guard.SIGNAL_BY_GUARD_STATUS.items():
        if signum == -code:
            cause = cause._replace(code=status, words="could not go on")
    if launch.result:
        endings.write_result(failures.LaunchResult(cause.status(), cause), launch)
    say.say([f"{cause.in_words}: ended the workers"])
    return cause.status()

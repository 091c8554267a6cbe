"""The launcher's own part: start the guard, pass on signals, and take over if the guard dies."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from spawnlaunch.errors import UsageError
from spawnlaunch.node import proc
from spawnlaunch.reading import absolute
from spawnlaunch.request import FAILURE_GRACE_S
from spawnlaunch.run import attempts, guard, kernel, signals
from spawnlaunch.run.decisions import LAST_S, Cause, Signalled
from spawnlaunch.run.environment import ERROR_FILE
from spawnlaunch.run.loop import SignalPipe
from spawnlaunch.run.model import LaunchOptions, LaunchResult
from spawnlaunch.run.say import say
from spawnlaunch.run.signals import exit_status, how_it_ended, signal
from spawnlaunch.run.supervisor import TYPED, Supervisor
from spawnlaunch.run.tree import Tree, reap
from spawnlaunch.run.worker import Origin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spawnlaunch.request import Request
    from spawnlaunch.run.guard import Guard
    from spawnlaunch.run.model import Launch, Worker

# Open files of a guard: of each worker a pidfd, and of each stream that is shown a pipe; and with
# its own those of a look into /proc and of a module that is imported.
OF_A_WORKER, OF_THE_GUARD = 3, 32
OF_THE_GUARD_OF_ONE = 9  # a worker alone keeps our streams

# A job that is suspended is stopped as a whole, one process after the other: the guard is continued
# only if this one still runs so much later.
STOPPED_S = 1.0
DEAF_S = 10.0  # for the guard to hear a signal that means to end the job

SI_KERNEL = 0x80  # si_code of a signal that the kernel sent, here: the terminal (sigaction(2))


def run(launch: Launch, workers: Sequence[Worker], blocked: frozenset[int]) -> int:
    """Start the workers and see them to their end; the result is the exit status.

    `workers` are those of the first attempt, `blocked` is the signals that all are started with
    blocked. The signals that end, stop or continue the launch stay blocked, so that none cuts in
    while the interpreter ends. Raises UsageError where the workers cannot all be watched.
    """
    if launch.request.debug is not None:
        from spawnlaunch.run.keyboard import debug

        launch = debug.prepared(launch, workers)
    options = _options(launch)
    _check_open_files(workers)
    signals.set_default([signal.SIGCHLD])  # ignored, nobody's end could be waited for
    watched = signals.watched()
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    origin = Origin(os.getpgrp(), blocked)
    if not kernel.IS_LINUX:
        return _without_guard(workers, options, origin, watched)
    foreign = proc.children(os.getpid()) if proc.has_children() else ()
    reap(child.pid for child in foreign)  # who had ended before SIGCHLD was blocked
    tree = Tree(launch.mark, adopts=kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1), foreign=foreign)
    try:
        watcher = guard.start(workers, options, origin)
    except OSError as error:
        say([f"cannot start a guard: {error.strerror}; see ulimit -u, and the pids limit of the "
             "cgroup"])  # fmt: skip
        return os.EX_OSERR
    return _watch(watcher, watched, tree, options)


def _options(launch: Launch) -> LaunchOptions:
    """What the command line and the environment say about it. Raises UsageError."""
    request, world, environ = launch.request, launch.resolution.world, launch.environ
    result, error_file = request.result, environ.get(ERROR_FILE)
    if result or error_file:
        if not launch.resolution.gathering:  # of which one launcher writes for all
            from spawnlaunch.run.routes import own_file

            result = own_file(result, world) if result else None
            error_file = own_file(error_file, world) if error_file else None
        result = absolute(result, "--result") if result else None
        _check_files(request.result, result, error_file)
    grace_s, why = request.grace_s, ""
    if environ.get("SLURM_JOB_ID"):
        grace_s, why = _grace(request, environ)
    failure_s = request.failure_grace_s
    if failure_s is None and launch.resolution.gathering:
        failure_s = min(grace_s, FAILURE_GRACE_S)
    return LaunchOptions(launch, grace_s, why, result, error_file, failure_s)


def _check_files(named: str | None, result: str | None, error_file: str | None) -> None:
    """Raises UsageError; whether an error file can be written is seen after a failure, rarely."""
    from spawnlaunch.run import files

    why = result and files.refusal(result)
    if why:
        raise UsageError(f"--result {named}: {why}")
    try:
        files.resolved(error_file or "/")
    except OSError as error:
        raise UsageError(f"{ERROR_FILE}={error_file}: {error.strerror}; name another") from None


def _grace(request: Request, environ: Mapping[str, str]) -> tuple[float, str]:
    """The grace, cut where Slurm kills us before it is over, and why."""
    from spawnlaunch.world import slurm_site

    most_s = slurm_site.longest_grace_s(environ)
    if most_s is None or request.grace_s <= most_s:
        return request.grace_s, ""
    return most_s, f" (Slurm's KillWait is {slurm_site.kill_wait_s(environ)} s)"


def _check_open_files(workers: Sequence[Worker]) -> None:
    """A guard that may open no more files cannot even end the workers that it has."""
    kept = sum(route.file is not None and route.shown for w in workers for route in w.routes)
    several = len(workers) > 1
    needed = len(workers) * OF_A_WORKER + kept + (OF_THE_GUARD if several else OF_THE_GUARD_OF_ONE)
    if needed <= os.sysconf("SC_OPEN_MAX"):
        return
    import resource  # the soft limit can be raised to the hard one

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if needed > most != resource.RLIM_INFINITY:
        fits = max(1, (most - OF_THE_GUARD) * len(workers) // (needed - OF_THE_GUARD))
        fewer = f"--nproc {fits}, or raise the limit: " if several else ""
        who = f"{len(workers)} workers need" if several else "one worker needs"
        raise UsageError(
            f"{who} {needed} open files, and {most} are allowed; type {fewer}ulimit -n {needed}"
        )


def _watch(watcher: Guard, watched: frozenset[int], tree: Tree, options: LaunchOptions) -> int:
    """Pass on signals until the guard has ended."""
    status, look_at = None, None
    info: signal.struct_siginfo | None
    while status is None:
        if look_at is None:
            info = signal.sigwaitinfo(watched)
        else:
            info = signal.sigtimedwait(watched, max(0.0, look_at - time.monotonic()))
        if info is None:  # the time has come
            look_at = None
            status = _set_going(watcher)
        elif info.si_signo != signal.SIGCHLD:
            _pass_on(watcher, info)
            if info.si_signo in signals.STOP:
                look_at = _earlier(look_at, DEAF_S)
            elif info.si_signo == signal.SIGCONT:  # the guard may be next
                look_at = time.monotonic() + STOPPED_S
        else:
            status = _reap(watcher.pid)
            if status is None and proc.is_stopped(watcher.pid):
                look_at = _earlier(look_at, STOPPED_S)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return _take_over(code, watcher, tree, options)
    if proc.has_children() and os.getpid() != 1:  # all others end with PID 1
        tree.end(LAST_S)  # the guard has named what it could not kill
    return code


def _earlier(then: float | None, after_s: float) -> float:
    when = time.monotonic() + after_s
    return when if then is None else min(then, when)


def _reap(guard: int) -> int | None:
    """Reap what has ended; the result is the status of the guard, if it is among that.

    The others are orphans of the children that were here before the launch, or, where this is PID 1
    of a container, of whatever else is started there.
    """
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in (guard, 0):
            return status if pid else None


def _pass_on(watcher: Guard, info: signal.struct_siginfo) -> None:
    typed = TYPED if info.si_code == SI_KERNEL else 0
    with suppress(OSError):  # the guard may have ended, which we are about to hear
        os.write(watcher.channel, bytes([info.si_signo | typed]))
    if info.si_signo == signal.SIGTSTP:
        os.kill(os.getpid(), signal.SIGSTOP)


def _set_going(watcher: Guard) -> int | None:
    """Continue a guard that somebody has stopped, and kill one that a debugger holds.

    What is left unread in the pipe tells that it is held for good, and not for a look. The result
    is the status of one that was killed: the kernel tells it to the debugger first, which may not
    ask for it.
    """
    if proc.is_stopped(watcher.pid):
        say([f"the guard (pid {watcher.pid}) was stopped: continued it"])
        os.kill(watcher.pid, signal.SIGCONT)
    elif kernel.size_of(watcher.channel) and proc.is_held(watcher.pid):
        say([f"a debugger holds the guard (pid {watcher.pid}), which cannot end the workers: "
             "killing it"])  # fmt: skip
        os.kill(watcher.pid, signal.SIGKILL)
        return int(signal.SIGKILL)
    return None


def _take_over(code: int, watcher: Guard, tree: Tree, options: LaunchOptions) -> int:
    """End what a guard has left that was killed, or had a fault."""
    attempts.end(tree)
    attempts.remove_scratch(options.launch.scratch)
    failed = code == -guard.FAULT
    status = os.EX_SOFTWARE if failed else exit_status(code)
    if options.result:
        from spawnlaunch.run import report

        report.write_result(LaunchResult(status, Cause("guard")), options)
    how = "had a fault" if failed else how_it_ended(code)
    say([f"the guard (pid {watcher.pid}) {how}: ended the workers"])
    return status


def _without_guard(
    workers: Sequence[Worker], options: LaunchOptions, origin: Origin, watched: frozenset[int]
) -> int:
    """Where the kernel has no subreapers, the launcher itself starts and watches the workers.

    Then nobody is there to end them if it is killed with SIGKILL.
    """
    tree = Tree(options.launch.mark, adopts=False)
    supervisor = Supervisor(options, origin, tree, SignalPipe(watched))
    supervisor.watch_signals(Signalled)
    return attempts.carry_out(supervisor, tree, workers, options)

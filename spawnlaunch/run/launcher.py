"""The launcher, and its guard: a process between it and the workers, which starts and watches them.

    launcher   the process that the user started; takes the signals, and passes them on
      guard    a subreaper in a group of its own; starts the workers and decides
        worker, worker, ...   several are in sessions of their own; they die with the guard

They watch each other. A launcher that dies, of whatever, closes the pipe to its guard, which kills
all that is below it. A guard that dies takes the workers with it (PR_SET_PDEATHSIG), and what those
have started comes to the launcher, a subreaper too, which kills it. So either one is enough.

A guard in which something goes wrong tidies up as far as it can, and dies of FAULT, so that the
launcher tells it from one whose workers ended with the same status, and does the rest.

A guard that is stopped is continued: by the launcher, and by the kernel if the launcher dies.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from spawnlaunch.errors import WRONG_USE, UsageError, internal_error
from spawnlaunch.node import kernel, proc
from spawnlaunch.reading import absolute
from spawnlaunch.records import NamedTuple
from spawnlaunch.request import FAILURE_GRACE_S
from spawnlaunch.run import attempts, signals
from spawnlaunch.run.decisions import LAST_S, Cause, GuardSignalled, Signalled
from spawnlaunch.run.environment import ERROR_FILE
from spawnlaunch.run.loop import SignalPipe
from spawnlaunch.run.model import LaunchResult
from spawnlaunch.run.output import OF_THE_GUARD
from spawnlaunch.run.say import say
from spawnlaunch.run.signals import exit_status, how_it_ended, signal
from spawnlaunch.run.supervisor import TYPED, Supervisor
from spawnlaunch.run.tree import Tree, reap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spawnlaunch.request import Request
    from spawnlaunch.run.model import Launch, Worker

# Open files of a worker in the guard, without those that its output is kept in: a pidfd, and a pipe
# of each stream. A launch is refused for want of what it needs; the soft limit is raised where the
# most of `Output.begin` would not fit.
LEAST_OF_A_WORKER = 3
OF_THE_GUARD_OF_ONE = 9  # a worker alone keeps our streams

# A job that is suspended is stopped as a whole, one process after the other: the guard is continued
# only if this one still runs so much later.
STOPPED_S = 1.0
DEAF_S = 10.0  # for the guard to hear a signal that means to end the job

BLIND = (
    "warning: /proc does not show our PID namespace: what a worker leaves outside its process "
    "group is killed only when all have ended, SIGUSR1, SIGUSR2 and SIGWINCH are not passed on, "
    "and no stacks are told; unshare --mount-proc python -m spawnlaunch ... mounts one"
)

FAULT = signal.SIGVTALRM  # of timers that we do not set: nobody sends it

SI_KERNEL = 0x80  # si_code of a signal that the kernel sent, here: the terminal (sigaction(2))


class Guard(NamedTuple):
    """What the launcher knows of its guard."""

    pid: int
    channel: int  # descriptor to write signals to


def run(launch: Launch, workers: Sequence[Worker], blocked: frozenset[int]) -> int:
    """Start the workers and see them to their end; the result is the exit status.

    `workers` are those of the first attempt, `blocked` is the signals that all are started with
    blocked. The signals that end, stop or continue the launch stay blocked, so that none cuts in
    while the interpreter ends. Raises UsageError where the workers cannot all be watched.
    """
    if launch.request.debug is not None:
        from spawnlaunch.run.keyboard import debug

        launch = debug.prepared(launch, workers)
    launch = _with_endings(launch)._replace(group=os.getpgrp(), blocked=blocked)
    _check_open_files(workers)
    signals.set_default([signal.SIGCHLD])  # ignored, nobody's end could be waited for
    watched = signals.watched()
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    if not kernel.IS_LINUX:
        # Without subreapers: nobody ends the workers if this process is killed with SIGKILL.
        tree = Tree(launch.mark, adopts=False)
        supervisor = Supervisor(launch, tree, SignalPipe(watched))
        supervisor.watch_signals(Signalled)
        return attempts.carry_out(supervisor, workers)
    foreign = proc.children(os.getpid()) if proc.has_children() else ()
    reap(child.pid for child in foreign)  # who had ended before SIGCHLD was blocked
    tree = Tree(launch.mark, adopts=kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1), foreign=foreign)
    try:
        guard = _start_guard(workers, launch)
    except OSError as error:
        say([f"cannot start a guard: {error.strerror}; see ulimit -u, and the pids limit of the "
             "cgroup"])  # fmt: skip
        return os.EX_OSERR
    return _watch(guard, watched, tree, launch)


def _with_endings(launch: Launch) -> Launch:
    """The launch with how it ends, as flags and environment say. Raises UsageError."""
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
    return launch._replace(
        grace_s=grace_s,
        grace_why=why,
        failure_grace_s=failure_s,
        result=result,
        error_file=error_file,
    )


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
    """Raises UsageError where the guard would run out of open files: it could end no worker."""
    kept = sum(route.file is not None and route.shown for w in workers for route in w.routes)
    several_workers = len(workers) > 1
    own = OF_THE_GUARD if several_workers else OF_THE_GUARD_OF_ONE
    needed = len(workers) * LEAST_OF_A_WORKER + kept + own
    if needed <= os.sysconf("SC_OPEN_MAX"):
        return
    import resource  # the soft limit can be raised to the hard one

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if needed > most != resource.RLIM_INFINITY:
        fits = max(1, (most - own) * len(workers) // (needed - own))
        fewer = f"--nproc {fits}, or raise the limit: " if several_workers else ""
        who = f"{len(workers)} workers need" if several_workers else "one worker needs"
        raise UsageError(
            f"{who} {needed} open files, and {most} are allowed; type {fewer}ulimit -n {needed}"
        )


def _start_guard(workers: Sequence[Worker], launch: Launch) -> Guard:
    """Fork the guard; the signals that the launcher watches are blocked by now.

    Raises OSError where there can be no other process.
    """
    launcher = os.getpid()
    inlet, outlet = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = None
        try:
            os.close(outlet)
            status = _be_guard(workers, launch, launcher, inlet)
        except UsageError as error:
            say([f"error: {error}"])
            status = WRONG_USE
        except Exception as error:
            if os.environ.get("SPAWNLAUNCH_DEBUG"):
                import traceback

                traceback.print_exc()
            say([internal_error(error, " in the guard")])
        finally:
            if status is None:
                signals.set_default([FAULT])
                signal.pthread_sigmask(signal.SIG_UNBLOCK, [FAULT])
                os.kill(os.getpid(), FAULT)
            os._exit(os.EX_SOFTWARE if status is None else status)  # no second launcher returns
    os.close(inlet)
    os.set_blocking(outlet, False)
    return Guard(pid, outlet)


def _be_guard(workers: Sequence[Worker], launch: Launch, launcher: int, inlet: int) -> int:
    """Be the guard; the result is the exit status, for the launcher to have as well.

    What is typed on the terminal, or sent to the launcher's group, is for the launcher: the guard
    has a group of its own, and a session of its own but for a worker that is to have the terminal.
    """
    kernel.rename("spawnlaunch grd", f"spawnlaunch guard of {launcher}")
    if all(worker.own_session for worker in workers):
        os.setsid()
    else:
        os.setpgid(0, 0)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGCONT)  # should it be stopped then
    tree = Tree(launch.mark, adopts=kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1))
    if not proc.is_proc_ours():
        say([BLIND])
    signal.pthread_sigmask(signal.SIG_BLOCK, signals.TERMINAL)
    pipe = SignalPipe((signals.watched() & signals.STOP) | {signal.SIGCHLD})
    supervisor = Supervisor(launch, tree, pipe)
    supervisor.watch_signals(GuardSignalled)
    supervisor.watch_launcher(inlet)
    return attempts.carry_out(supervisor, workers)


def _watch(guard: Guard, watched: frozenset[int], tree: Tree, launch: Launch) -> int:
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
            status = _set_going(guard)
        elif info.si_signo != signal.SIGCHLD:
            _pass_on(guard, info)
            if info.si_signo in signals.STOP:
                look_at = _earlier(look_at, DEAF_S)
            elif info.si_signo == signal.SIGCONT:  # the guard may be next
                look_at = time.monotonic() + STOPPED_S
        else:
            status = _reap(guard.pid)
            if status is None and proc.is_stopped(guard.pid):
                look_at = _earlier(look_at, STOPPED_S)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return _take_over(code, guard, tree, launch)
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


def _pass_on(guard: Guard, info: signal.struct_siginfo) -> None:
    typed = TYPED if info.si_code == SI_KERNEL else 0
    with suppress(OSError):  # the guard may have ended, which we are about to hear
        os.write(guard.channel, bytes([info.si_signo | typed]))
    if info.si_signo == signal.SIGTSTP:
        os.kill(os.getpid(), signal.SIGSTOP)


def _set_going(guard: Guard) -> int | None:
    """Continue a guard that somebody has stopped, and kill one that a debugger holds.

    What is left unread in the pipe tells that it is held for good, and not for a look. The result
    is the status of one that was killed: the kernel tells it to the debugger first, which may not
    ask for it.
    """
    if proc.is_stopped(guard.pid):
        say([f"the guard (pid {guard.pid}) was stopped: continued it"])
        os.kill(guard.pid, signal.SIGCONT)
    elif kernel.size_of(guard.channel) and proc.is_held(guard.pid):
        say([f"a debugger holds the guard (pid {guard.pid}), which cannot end the workers: "
             "killing it"])  # fmt: skip
        os.kill(guard.pid, signal.SIGKILL)
        return int(signal.SIGKILL)
    return None


def _take_over(code: int, guard: Guard, tree: Tree, launch: Launch) -> int:
    """End what a guard has left that was killed, or had a fault."""
    attempts.end(tree)
    attempts.remove_scratch(launch.scratch)
    failed = code == -FAULT
    status = os.EX_SOFTWARE if failed else exit_status(code)
    if launch.result:
        from spawnlaunch.run import report

        report.write_result(LaunchResult(status, Cause("guard")), launch)
    how = "had a fault" if failed else how_it_ended(code)
    say([f"the guard (pid {guard.pid}) {how}: ended the workers"])
    return status

"""The launcher's own part: start the guard, pass on signals, and take over if the guard dies."""

import os
import signal
import time
from contextlib import suppress

from spawnlaunch.run import guard, job, kernel, scratch, signals
from spawnlaunch.run.decisions import Cause, Signalled
from spawnlaunch.run.guard import Guard
from spawnlaunch.run.job import Crew
from spawnlaunch.run.loop import SignalPipe
from spawnlaunch.run.options import Options
from spawnlaunch.run.outcome import Ending
from spawnlaunch.run.processtree import Tree, children, is_held, reap
from spawnlaunch.run.say import say
from spawnlaunch.run.signals import exit_status, how_it_ended
from spawnlaunch.run.supervisor import TYPED, Gang, Place

# A job that is suspended is stopped as a whole, one process after the other: the guard is continued
# only if this one still runs so much later.
STOPPED_S = 1.0
DEAF_S = 10.0  # for the guard to hear a signal that means to end the job

LATE_S = 1.0  # for what has just come from the guard, which has named what it could not kill

SI_KERNEL = 0x80  # si_code of a signal that the kernel sent, here: the terminal (sigaction(2))


def launch(crew: Crew, options: Options, mask: frozenset[int]) -> int:
    """Run the workers, started with `mask`, to their end; the result is the exit status.

    The signals that end, stop or continue the launch stay blocked, so that none cuts in while the
    interpreter ends.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, nobody's end could be waited for
    watched = signals.watched()
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    place = Place(os.getpgrp(), mask)
    if not kernel.IS_LINUX:
        return _without_guard(crew, options, place, watched)
    foreign = children(os.getpid()) if kernel.has_children() else ()
    reap(child.pid for child in foreign)  # who had ended before SIGCHLD was blocked
    tree = Tree(options.mark, adopts=kernel.adopt_orphans(), foreign=foreign)
    try:
        watcher = guard.start(crew, options, place)
    except OSError as error:
        say([f"cannot start a guard: {error.strerror}; see ulimit -u, and the pids limit of the "
             "cgroup"])  # fmt: skip
        return os.EX_OSERR
    return _watch(watcher, watched, tree, options)


def _watch(watcher: Guard, watched: frozenset[int], tree: Tree, options: Options) -> int:
    """Pass on signals until the guard has ended."""
    status, look_at = None, None
    while status is None:
        info = _next_signal(watched, look_at)
        if info is None:
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
            if status is None and kernel.is_stopped(watcher.pid):
                look_at = _earlier(look_at, STOPPED_S)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return _take_over(code, watcher, tree, options)
    if kernel.has_children() and os.getpid() != 1:  # all others end with PID 1
        tree.end(LATE_S)
    return code


def _next_signal(watched: frozenset[int], until: float | None) -> "signal.struct_siginfo | None":
    """Wait for it; None: the time has come."""
    if until is None:
        return signal.sigwaitinfo(watched)
    return signal.sigtimedwait(watched, max(0.0, until - time.monotonic()))


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


def _pass_on(watcher: Guard, info: "signal.struct_siginfo") -> None:
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
    if kernel.is_stopped(watcher.pid):
        say([f"the guard (pid {watcher.pid}) was stopped: continued it"])
        os.kill(watcher.pid, signal.SIGCONT)
    elif kernel.is_unread(watcher.channel) and is_held(watcher.pid):
        say([f"a debugger holds the guard (pid {watcher.pid}), which cannot end the workers: "
             "killing it"])  # fmt: skip
        os.kill(watcher.pid, signal.SIGKILL)
        return int(signal.SIGKILL)
    return None


def _take_over(code: int, watcher: Guard, tree: Tree, options: Options) -> int:
    """End what a guard has left that was killed, or had a fault."""
    job.end(tree)
    scratch.remove(options.scratch)
    failed = code == -guard.FAULT
    status = os.EX_SOFTWARE if failed else exit_status(code)
    if options.result:
        ending = Ending(status, Cause("guard"), (), options.hostname, options.run_id, None)
        job.write_result(ending, options.result)
    how = "had a fault" if failed else how_it_ended(code)
    say([f"the guard (pid {watcher.pid}) {how}: ended the workers"])
    return status


def _without_guard(crew: Crew, options: Options, place: Place, watched: frozenset[int]) -> int:
    """Where the kernel has no subreapers, the launcher itself starts and watches the workers.

    Then nobody is there to end them if it is killed with SIGKILL.
    """
    tree = Tree(options.mark, adopts=False)
    gang = Gang(options, place, tree, SignalPipe(watched))
    gang.watch_signals(Signalled)
    return job.carry_out(gang, tree, crew, options)

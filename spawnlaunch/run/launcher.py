"""The launcher's own part: start the guard, pass on signals, and take over if the guard dies."""

import os
import signal
from contextlib import suppress

from spawnlaunch.run import guard, job, kernel, scratch, signals
from spawnlaunch.run.decisions import Cause, Signalled
from spawnlaunch.run.guard import Guard
from spawnlaunch.run.job import Crew
from spawnlaunch.run.loop import SignalPipe
from spawnlaunch.run.options import Options
from spawnlaunch.run.outcome import Ending
from spawnlaunch.run.processtree import Tree, child_pids
from spawnlaunch.run.say import say
from spawnlaunch.run.signals import exit_status, how_it_ended
from spawnlaunch.run.supervisor import TYPED, Gang, Place

SI_KERNEL = 0x80  # si_code of a signal that the kernel sent, here: the terminal (sigaction(2))


def launch(crew: Crew, options: Options) -> int:
    """Run the workers to their end; the result is the exit status.

    The signals that end, stop or continue the launch stay blocked, so that none cuts in while the
    interpreter ends.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, nobody's end could be waited for
    watched = signals.watched()
    mask = frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, watched))
    place = Place(os.getpgrp(), mask)
    if not kernel.IS_LINUX:
        return _without_guard(crew, options, place, watched)
    foreign = child_pids(os.getpid())
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
    while True:
        info = signal.sigwaitinfo(watched)
        if info.si_signo != signal.SIGCHLD:
            _pass_on(watcher, info)
            continue
        pid, status = os.waitpid(watcher.pid, os.WNOHANG)
        if pid:
            break
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else _take_over(code, watcher, tree, options)


def _pass_on(watcher: Guard, info: "signal.struct_siginfo") -> None:
    typed = TYPED if info.si_code == SI_KERNEL else 0
    with suppress(OSError):  # the guard may have ended, which we are about to hear
        os.write(watcher.channel, bytes([info.si_signo | typed]))
    if info.si_signo == signal.SIGTSTP:
        os.kill(os.getpid(), signal.SIGSTOP)


def _take_over(code: int, watcher: Guard, tree: Tree, options: Options) -> int:
    """End what a guard has left that was killed."""
    job.end(tree)
    scratch.remove(options.scratch)
    status = exit_status(code)
    if options.result:
        ending = Ending(status, Cause("guard"), (), options.hostname, options.run_id, None)
        job.write_result(ending, options.result)
    say([f"the guard (pid {watcher.pid}) {how_it_ended(code)}: ended the workers"])
    return status


def _without_guard(crew: Crew, options: Options, place: Place, watched: frozenset[int]) -> int:
    """Where the kernel has no subreapers, the launcher itself starts and watches the workers.

    Then nobody is there to end them if it is killed with SIGKILL.
    """
    tree = Tree(options.mark, adopts=False)
    gang = Gang(options, place, tree, SignalPipe(watched))
    gang.watch_signals(Signalled)
    return job.carry_out(gang, tree, crew, options)

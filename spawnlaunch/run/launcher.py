"""The launcher, and its guard: a process between it and the workers, which starts and watches them.

    launcher   the process that the user started; takes the signals, and passes them on
      guard    a subreaper in a group of its own; starts the workers and decides
        worker, worker, ...   several are in sessions of their own; they die with the guard

They watch each other. A launcher that dies, of whatever, closes the pipe to its guard, which kills
all that is below it. A guard that dies takes the workers with it (PR_SET_PDEATHSIG), and what those
have started comes to the launcher, a subreaper too, which kills it. So either one is enough.

A guard in which something goes wrong tidies up as far as it can, and dies of one of FAULTS, so that
the launcher tells it from one whose workers ended with the same status, and does the rest.

A guard that is stopped is continued: by the launcher, and by the kernel if the launcher dies.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial

from spawnlaunch import errors, failures, finder, flags, machine, reading, records
from spawnlaunch.node import proc
from spawnlaunch.run import attempts, decisions, environment, events, launches, output, say, signals
from spawnlaunch.run.signals import signal
from spawnlaunch.run.supervisor import SETTLED_S, TYPED, Supervisor, import_the_rest
from spawnlaunch.run.tree import Tree, reap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


# Open files of a worker in the guard, without those that its output is kept in: a pidfd, and a pipe
# of each stream. A launch is refused for want of what it needs; the soft limit is raised where the
# most of `Output.begin` would not fit.
LEAST_OF_A_WORKER = 3
OF_THE_GUARD_OF_ONE = 9  # a worker alone keeps our streams

NEVER = float("inf")
MAX_ERRNO = 4095  # include/linux/err.h of the kernel
DEAF_S = 10.0  # for the guard to hear a signal that means to end the job

BLIND = (
    "warning: /proc does not show our PID namespace: what a worker leaves outside its process "
    "group is killed only when all have ended, SIGUSR1, SIGUSR2 and SIGWINCH are not passed on, "
    "and no stacks are told; unshare --mount-proc python -m spawnlaunch ... mounts one"
)

WITH_US = (
    "warning: the system refuses sessions or process groups ({}): the signals of this terminal, as "
    "of Ctrl-C, may reach workers directly"
)

# What a guard dies of that cannot go on, by the exit status that is to be the launcher's: signals
# of timers that we do not set, so that nobody sends them.
FAULTS = {os.EX_SOFTWARE: signal.SIGVTALRM, os.EX_OSERR: signal.SIGPROF}

SI_KERNEL = 0x80  # si_code of a signal that the kernel sent, here: the terminal (sigaction(2))


class GuardProcess(records.NamedTuple):
    """What the launcher knows of its guard."""

    pid: int
    channel: int  # descriptor to write signals to


def run(
    launch: launches.Launch, workers: Sequence[launches.Worker], blocked: frozenset[int]
) -> int:
    """Start the workers and see them to their end; the result is the exit status.

    `workers` are those of the first attempt (on several nodes only examples of them, as ranks are
    not agreed yet), `blocked` is the signals that all are started with blocked. The signals that
    end, stop or continue the launch stay blocked, so that none cuts in while the interpreter ends.
    Raises UsageError where the workers cannot all be watched, OSError where the system refuses what
    a launch needs; nothing is left then.
    """
    if launch.request.debug is not None:
        from spawnlaunch.run.keyboard import debug

        launch = debug.prepared(launch, workers)
    launch = _with_endings(launch)._replace(group=machine.getpgrp(), blocked=blocked)
    _check_system(workers)
    signals.set_default([signal.SIGCHLD])  # ignored, nobody's end could be waited for
    watched = signals.watched()
    machine.pthread_sigmask(signal.SIG_BLOCK, watched)
    if not machine.IS_LINUX:
        # Without subreapers: nobody ends the workers if this process is killed with SIGKILL.
        tree = Tree(launch.mark, adopts=False)
        supervisor = Supervisor(launch, tree, events.SignalPipe(watched))
        supervisor.listen()
        return attempts.carry_out(supervisor, workers)
    foreign = proc.children(machine.getpid()) if proc.has_children() else ()
    reap(child.pid for child in foreign)  # who had ended before SIGCHLD was blocked
    adopts = machine.prctl(machine.PR_SET_CHILD_SUBREAPER, 1)
    tree = Tree(launch.mark, adopts=adopts, foreign=foreign)
    guard = _start_guard(workers, launch)
    try:
        code = os.waitstatus_to_exitcode(_watch(guard, watched))
        if code < 0:
            return _take_over(code, guard, tree, launch)
        if proc.has_children() and machine.getpid() != 1:  # all others end with PID 1
            tree.end(decisions.LAST_S)  # the guard has named what it could not kill
        return code
    except OSError:
        machine.close(guard.channel)  # so it ends the workers
        with suppress(ChildProcessError):
            machine.waitpid(guard.pid, 0)
        _take_over(-FAULTS[os.EX_OSERR], guard, tree, launch)
        raise


def _with_endings(launch: launches.Launch) -> launches.Launch:
    """The launch with how it ends, as flags and environment say. Raises UsageError."""
    request = launch.request
    result, error_file = request.result, launch.environ.get(environment.ERROR_FILE)
    if result or error_file:
        result, error_file = _own_files(launch, result, error_file)
    grace_s, why, limit_s = request.grace_s, "", None
    longest = launch.resolution.ask_around("longest_grace_s") if launch.resolution.around else None
    if longest:
        limit_s = longest.value
        why = f" ({longest.source})" if grace_s > limit_s else ""
        grace_s = min(grace_s, limit_s)
    failure_s = request.failure_grace_s
    if failure_s is None and launch.resolution.gathering:
        failure_s = min(grace_s, flags.FAILURE_GRACE_S)
    return launch._replace(
        grace_s=grace_s, grace_why=why, limit_s=limit_s, failure_grace_s=failure_s,
        result=result, error_file=error_file,
    )  # fmt: skip


def _own_files(
    launch: launches.Launch, result: str | None, error_file: str | None
) -> tuple[str | None, str | None]:
    """Those of this launcher, which were named for all. Raises UsageError.

    Whether an error file can be written is seen after a failure, rarely.
    """
    from spawnlaunch.run import files, routes

    if not launch.resolution.gathering:  # of which one launcher writes for all
        world = launch.resolution.world
        result = result and routes.own_file(result, world)
        error_file = error_file and routes.own_file(error_file, world)
    result = result and reading.absolute(result, "--result")
    why = result and files.refusal(result)
    if why:
        raise errors.UsageError(f"--result {launch.request.result}: {why}")
    try:
        files.resolved(error_file or "/")
    except OSError as error:
        raise errors.UsageError(
            f"{environment.ERROR_FILE}={error_file}: {error.strerror}; name another"
        ) from None
    return result, error_file


def _check_system(workers: Sequence[launches.Worker]) -> None:
    """Ask for what a launch cannot do without while nobody has to be ended.

    Raises OSError where it is refused, and UsageError where the guard would run out of open files:
    it could end no worker.
    """
    for ask in (machine.getpid, machine.getppid, machine.getpgrp, machine.geteuid):
        number = -ask() % (1 << 32)  # "always successful": nobody looks for an error
        if 0 < number <= MAX_ERRNO:
            raise OSError(number, os.strerror(number), ask.__name__)
    with suppress(ChildProcessError):
        machine.waitpid(machine.getpid(), os.WNOHANG)
    machine.kill(machine.getpid(), 0)
    if machine.IS_LINUX:
        machine.sigtimedwait((), 0)
    kept = sum(route.file is not None and route.shown for w in workers for route in w.routes)
    own = output.OF_THE_GUARD if len(workers) > 1 else OF_THE_GUARD_OF_ONE
    needed = len(workers) * LEAST_OF_A_WORKER + kept + own
    if needed > machine.sysconf("SC_OPEN_MAX"):
        _check_limit(len(workers), needed, own)


def _check_limit(workers: int, needed: int, own: int) -> None:
    """Raises UsageError where so many open files, of which the guard has its own, are too many."""
    _, most = machine.getrlimit()
    if needed > most != machine.UNLIMITED:
        fits = max(1, (most - own) * workers // (needed - own))
        fewer = f"--nproc {fits}, or raise the limit: " if workers > 1 else ""
        who = f"{workers} workers need" if workers > 1 else "one worker needs"
        raise errors.UsageError(
            f"{who} {needed} open files, and {most} are allowed; type {fewer}ulimit -n {needed}"
        )


def _start_guard(workers: Sequence[launches.Worker], launch: launches.Launch) -> GuardProcess:
    """Fork the guard; the signals that the launcher watches are blocked by now.

    Raises OSError where there can be no other process.
    """
    launcher = machine.getpid()
    inlet, outlet = machine.pipe()
    machine.set_blocking(outlet, False)

    def guard() -> None:
        status, fault, supervisor = os.EX_SOFTWARE, os.EX_SOFTWARE, None
        try:
            machine.close(outlet)
            supervisor = _become_guard(workers, launch, launcher, inlet)
            status, fault = attempts.carry_out(supervisor, workers), 0
        except errors.UsageError as error:
            from spawnlaunch.run import unable

            status, fault = errors.WRONG_USE, 0
            say.say([f"error: {error}"])
            unable.tell_of(launch, status, str(error))
        except Exception as error:
            first: BaseException = error  # what came of it while we tidied up is no cause
            while first.__context__:
                first = first.__context__
            status = fault = os.EX_OSERR if isinstance(first, OSError) else os.EX_SOFTWARE
            if finder.tell_change():
                status = fault = os.EX_OSERR
            else:
                from spawnlaunch.run import refused, unable  # which may fail as well

                has_begun = supervisor is not None and supervisor.has_begun
                tell = None if has_begun else partial(unable.tell_of, launch)
                refused.end(error, " in the guard", tell=tell)
        finally:
            with suppress(OSError):
                if fault:
                    signals.set_default([FAULTS[fault]])
                    machine.pthread_sigmask(signal.SIG_UNBLOCK, [FAULTS[fault]])
                    machine.kill(machine.getpid(), FAULTS[fault])
            machine.exit_now(status)

    pid = machine.fork(guard)
    machine.close(inlet)
    return GuardProcess(pid, outlet)


def _become_guard(
    workers: Sequence[launches.Worker], launch: launches.Launch, launcher: int, inlet: int
) -> Supervisor:
    """Become the guard; the result is what supervises the workers, which are still to be started.

    What is typed on the terminal, or sent to the launcher's group, is for the launcher: the guard
    has a group of its own, and a session of its own but for a worker that is to have the terminal.
    """
    machine.rename_process("spawnlaunch grd", f"spawnlaunch guard of {launcher}")
    if refused := signals.detach(session=all(worker.own_session for worker in workers)):
        say.say([WITH_US.format(refused.strerror)])
    machine.prctl(machine.PR_SET_PDEATHSIG, signal.SIGCONT)  # should it be stopped then
    tree = Tree(launch.mark, adopts=machine.prctl(machine.PR_SET_CHILD_SUBREAPER, 1))
    if not proc.is_proc_ours():
        say.say([BLIND])
    machine.pthread_sigmask(signal.SIG_BLOCK, signals.TERMINAL)
    pipe = events.SignalPipe((signals.watched() & signals.STOP) | {signal.SIGCHLD})
    supervisor = Supervisor(launch, tree, pipe)
    supervisor.listen(inlet)
    return supervisor


def _watch(guard: GuardProcess, watched: frozenset[int]) -> int:
    """Pass on signals until the guard has ended, and look after it at times.

    The result is its status, as waitpid(2) has it.
    SIGALRM tells the time: where sigtimedwait is interrupted, as by SIGCONT, and its time is over
    then, what it returns was never written (CPython 3.10 to 3.13).
    """
    status = None
    machine.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    look_at = _alarm(SETTLED_S)
    while status is None:
        info = machine.sigwaitinfo(watched | {signal.SIGALRM})
        if info.si_signo == signal.SIGALRM:
            if machine.monotonic() > look_at + events.LATE_S:
                # We could not run, nor may the guard have.
                look_at = _alarm(DEAF_S)
                continue
            look_at = NEVER
            import_the_rest()
            status = _set_going(guard)
        elif info.si_signo != signal.SIGCHLD:
            _pass_on(guard, info)
            if info.si_signo in signals.STOP and look_at > machine.monotonic() + DEAF_S:
                look_at = _alarm(DEAF_S)
            elif info.si_signo == signal.SIGCONT:  # the guard may be next
                look_at = _alarm(decisions.STOPPED_S)
        else:
            status = _reap(guard.pid)
            is_stopped = status is None and proc.is_stopped(guard.pid)
            if is_stopped and look_at > machine.monotonic() + decisions.STOPPED_S:
                look_at = _alarm(decisions.STOPPED_S)
    return status


def _alarm(after_s: float) -> float:
    """Have SIGALRM then; the result is when that is (monotonic clock, seconds).

    NEVER where that is refused: only a guard that somebody has stopped is not continued then.
    """
    try:
        machine.setitimer(signal.ITIMER_REAL, after_s)
    except OSError:
        return NEVER
    return machine.monotonic() + after_s


def _reap(guard: int) -> int | None:
    """Reap what has ended; the result is the status of the guard, if it is among that.

    The others are orphans of the children that were here before the launch, or, where this is PID 1
    of a container, of whatever else is started there.
    """
    while True:
        pid, status = machine.waitpid(-1, os.WNOHANG)
        if pid in (guard, 0):
            return status if pid else None


def _pass_on(guard: GuardProcess, info: signal.struct_siginfo) -> None:
    typed = TYPED if info.si_code == SI_KERNEL else 0
    if typed and info.si_signo == signal.SIGTSTP and not _has_shell():
        machine.killpg(machine.getpgrp(), signal.SIGCONT)  # a worker may be stopped
        return
    with suppress(OSError):  # the guard may have ended, which we are about to hear
        machine.write(guard.channel, bytes([info.si_signo | typed]))
    if info.si_signo == signal.SIGTSTP:
        machine.kill(machine.getpid(), signal.SIGSTOP)


def _has_shell() -> bool:
    """Whether there is who could continue what Ctrl-Z stops: a process of our session above us.

    There is none behind ssh -t or docker run -it. The kernel stops nobody then ("orphaned process
    group" in setpgid(2)), but a worker of our group, which has the guard above it.
    """
    pid, group = machine.getppid(), machine.getpgrp()
    with suppress(OSError):
        while pid and machine.getpgid(pid) == group:
            pid = int(proc.stat(str(pid))[3])
        return pid > 0 and machine.getsid(pid) == machine.getsid(0)
    return False


def _set_going(guard: GuardProcess) -> int | None:
    """Continue a guard that somebody has stopped, and kill one that a debugger holds.

    What is left unread in the pipe tells that it is held for good, and not for a look. The result
    is the status of one that was killed: the kernel tells it to the debugger first, which may not
    ask for it.
    """
    if proc.is_stopped(guard.pid):
        say.say([f"the guard (pid {guard.pid}) was stopped: continued it"])
        machine.kill(guard.pid, signal.SIGCONT)
    elif machine.size_of(guard.channel) and proc.is_held(guard.pid):
        say.say([f"a debugger holds the guard (pid {guard.pid}), which cannot end the workers: "
                 "killing it"])  # fmt: skip
        machine.kill(guard.pid, signal.SIGKILL)
        return int(signal.SIGKILL)
    return None


def _take_over(code: int, guard: GuardProcess, tree: Tree, launch: launches.Launch) -> int:
    """End what a guard has left that was killed, or had a fault."""
    attempts.end(tree)
    attempts.remove_scratch(launch.scratch)
    cause = failures.Cause("guard", code=code, words=failures.how_it_ended(code), pid=guard.pid)
    for status, signum in FAULTS.items():
        if signum == -code:
            cause = cause._replace(code=status, words="could not go on")
    if launch.result:
        from spawnlaunch.run import report

        report.write_result(launches.LaunchResult(cause.status(), cause), launch)
    say.say([f"{cause.in_words}: ended the workers"])
    return cause.status()

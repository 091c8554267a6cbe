"""The process between launcher and workers: it starts them, supervises them, and ends what is left.

One attempt follows the other, as long as restarts are allowed; then comes the report. A guard in
which something goes wrong tidies up as far as it can, and dies of a signal of
SIGNAL_BY_GUARD_STATUS, so that the launcher tells it from one whose workers ended with the same
status, and does the rest.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from spawnlaunch.base import errors, events, machine, records, say, signals
from spawnlaunch.base.signals import signal
from spawnlaunch.node import proc
from spawnlaunch.outcome import endings, failures
from spawnlaunch.run.supervisor import Supervisor
from spawnlaunch.run.tree import Tree
from spawnlaunch.workers import files, launches, starting
from spawnlaunch.world import host

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch.run.observer import Coordinator
    from spawnlaunch.run.supervisor import MakeObserver

BLIND = (
    "warning: /proc does not show our PID namespace: what a worker leaves outside its process "
    "group is killed only when all have ended, SIGUSR1, SIGUSR2 and SIGWINCH are not passed on, "
    "and no stacks are shown; unshare --mount-proc spawnlaunch ... mounts one"
)

WITH_US = (
    "warning: the system refuses sessions or process groups ({}): the signals of this terminal, as "
    "of Ctrl-C, may reach workers directly"
)

# The signals that a guard dies of that cannot go on, by the exit status that the launcher is to
# have: signals of timers that we do not set, so that no other process sends them.
SIGNAL_BY_GUARD_STATUS = {os.EX_SOFTWARE: signal.SIGVTALRM, os.EX_OSERR: signal.SIGPROF}


class Inherited(records.NamedTuple):
    """The pipes and pids that a guard inherits from its launcher."""

    launcher_pid: int
    launcher_pipe_fd: int  # from which it reads what the launcher passes on
    to_guard_fd: int  # the launcher's own end of that pipe
    signals: events.SignalPipe  # the launcher's own


def run(
    launch: launches.Launch,
    workers: Sequence[launches.Worker],
    observers: Sequence[MakeObserver],
    coordinator: type[Coordinator] | None,
    inherited: Inherited,
) -> None:
    """Be the guard of these workers, and end this process with the status of the launch."""
    tell = partial(coordinator.tell_unable, launch) if coordinator else None
    status, fault, supervisor = os.EX_SOFTWARE, os.EX_SOFTWARE, None
    try:
        machine.close(inherited.to_guard_fd)
        inherited.signals.close()
        supervisor = _supervisor(launch, workers, observers, inherited)
        status, fault = carry_out(supervisor, workers, coordinator), 0
    except errors.UsageError as error:
        status, fault = say.fatal(error, report=tell), 0
    except Exception as error:
        first: BaseException = error  # what followed while the guard tidied up is no cause
        while first.__context__:
            first = first.__context__
        status = fault = os.EX_OSERR if isinstance(first, OSError) else os.EX_SOFTWARE
        has_begun = supervisor is not None and supervisor.has_begun
        say.fatal(error, " in the guard", report=None if has_begun else tell)
    finally:
        with suppress(OSError):
            if fault:
                signals.set_default([SIGNAL_BY_GUARD_STATUS[fault]])
                machine.pthread_sigmask(signal.SIG_UNBLOCK, [SIGNAL_BY_GUARD_STATUS[fault]])
                machine.kill(machine.getpid(), SIGNAL_BY_GUARD_STATUS[fault])
        machine.exit_now(status)


def _supervisor(
    launch: launches.Launch,
    workers: Sequence[launches.Worker],
    observers: Sequence[MakeObserver],
    inherited: Inherited,
) -> Supervisor:
    """Return the supervisor of the workers, which are still to be started.

    Signals from the terminal, or to the launcher's group, are for the launcher. So the guard has a
    group of its own, and also a session of its own unless a worker is to have the terminal.
    """
    launcher_pid = inherited.launcher_pid
    machine.rename_process("spawnlaunch grd", f"spawnlaunch guard of {launcher_pid}")
    if error := signals.detach(session=all(worker.has_session for worker in workers)):
        say.say([WITH_US.format(error.strerror)])
    machine.prctl(machine.PR_SET_PDEATHSIG, signal.SIGCONT)  # should it be stopped then
    tree = Tree(launch.mark, adopts=machine.prctl(machine.PR_SET_CHILD_SUBREAPER, 1))
    if not proc.is_proc_usable():
        say.say([BLIND])
    machine.pthread_sigmask(signal.SIG_BLOCK, signals.TERMINAL)
    pipe = events.SignalPipe((signals.watched() & signals.STOP) | {signal.SIGCHLD})
    machine.signal(signal.SIGCONT, partial(_look_at_launcher, launcher_pid, machine.getpid()))
    machine.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCONT])
    supervisor = Supervisor(launch, tree, pipe, observers)
    supervisor.listen(inherited.launcher_pipe_fd)
    return supervisor


def _look_at_launcher(launcher_pid: int, guard_pid: int, *_: object) -> None:
    """Handle SIGCONT in the guard: the launcher may have died.

    Nothing may hold the guard up then.
    """
    if machine.getppid() != launcher_pid and machine.getpid() == guard_pid:
        events.arm_watchdog()


def carry_out(
    supervisor: Supervisor,
    workers: Sequence[launches.Worker],
    coordinator: type[Coordinator] | None = None,
) -> int:
    """Run the workers to their end, kill what they leave, and report how the launch ended.

    The result is the exit status: that of the cause, or EX_IOERR where a launch without one has
    lost output, or cannot write the file of --result.
    """
    launch, tree = supervisor.launch, supervisor.tree
    files.make_scratch(launch.scratch)
    try:
        try:
            result, part = _run(supervisor, workers, coordinator)
        finally:
            if supervisor.rules.running:  # something went wrong here
                supervisor.kill()
            tree.spared.clear()
            tree.end_all()
            is_written = supervisor.output.drain(launch.grace_s, supervisor.is_end_requested)
        if not is_written:
            result = result.with_loss()
        supervisor.end(result)
        if result.cause or launch.result:
            if not endings.write_files(result, launch, part.elsewhere(result) if part else ()):
                result = result.with_loss()
            if part:
                part.report(result)
            else:
                _report(supervisor, result)
        return result.status
    finally:
        files.remove_scratch(launch.scratch)


def _run(
    supervisor: Supervisor,
    workers: Sequence[launches.Worker],
    coordinator: type[Coordinator] | None,
) -> tuple[failures.LaunchResult, Coordinator | None]:
    """Run the workers; the result is how the launch ended, and its part in several nodes."""
    launch, request = supervisor.launch, supervisor.launch.request
    if not coordinator:  # else they are others' ranks
        if request.timeout_s:
            supervisor.loop.alarm(
                lambda: supervisor.rules.timed_out(), request.timeout_s, always=True
            )
        starting.prepare_files(workers, launch.scratch)
    if early := supervisor.preload() if request.preload else None:
        status, words = early
        cause = supervisor.rules.cause or failures.Cause("preload", code=status, words=words)
        words = words or endings.ended_early(cause, request)
        say.say([words])
        signum = -cause.code if cause.kind == "signal" else 0
        if coordinator:
            coordinator.tell_unable(launch, status, words.removeprefix("error: "), signum)
        return failures.LaunchResult(status, cause), None
    if coordinator:
        part = coordinator(supervisor)
        return part.run(), part
    result = supervisor.run(workers)
    if result.cause is not None and request.max_restarts:
        result = _restarted(result, supervisor)
    return result, None


def _restarted(result: failures.LaunchResult, supervisor: Supervisor) -> failures.LaunchResult:
    """Run the workers again after a first attempt, as long as the budget of restarts allows it."""
    launch, tree, used = supervisor.launch, supervisor.tree, 0  # of the restarts that are allowed
    request, final = launch.request, launch.request.no_restart_status
    most, window_s = request.max_restarts, request.restart_window_s
    while result.cause is not None:
        rules = supervisor.rules
        more = failures.used_after(result.cause, used, most, window_s, final)
        if result.status in final and used < most and not rules.is_end_requested:
            others = ",".join(map(str, sorted(final - {result.status}))) or "''"
            supervisor.output.say([
                f"no restart after status {result.status}, though {most - used} of {most} are left;"
                f" to have one, use --no-restart-status {others}"
            ])  # fmt: skip
        if more is None or rules.has_later_request or not tree.end_all():
            break
        supervisor.loop.turn(0)  # for events that have come in meanwhile
        while rules.is_suspended and not rules.has_later_request:
            supervisor.loop.turn()
        if rules.has_later_request:
            break
        before = (*result.restarted, result.cause)
        total, used = len(before), more
        try:
            resolution, locked_port = host.renew_port(launch.resolution, launch.environ)
            launch = launch._replace(resolution=resolution, locked_port=locked_port)
            workers = starting.make_workers(launch, total)
            starting.prepare_files(workers, launch.scratch, restart=total)
        except errors.UsageError as error:
            say.say([f"cannot restart: {error}"])
            break
        in_all = f" (in all {total})" * (total != used)
        words = f"{result.cause.in_words}: restart {used} of {most}{in_all}"
        supervisor.output.say([words])
        supervisor.note("restart", words=words)
        result = supervisor.run(workers)._replace(restarted=before)
    return result


def _report(supervisor: Supervisor, result: failures.LaunchResult) -> None:
    """Print the report."""
    launch, hostname, failure = supervisor.launch, supervisor.launch.hostname, result.first_failure
    patience_s = min(max(launch.grace_s, say.PATIENCE_S), events.LONGEST_S)  # only this is left
    say.say(endings.summary(result, hostname), patience_s)
    if failure:
        endings.print_environment_hint(failure, launch, patience_s)
        endings.print_last_words(
            failure, hostname, supervisor.output.shown_last(failure), patience_s
        )

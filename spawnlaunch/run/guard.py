"""The process between launcher and workers: it starts them, supervises them, and ends what is left.

A guard in which something goes wrong tidies up as far as it can, and dies of one of FAULTS, so that
the launcher tells it from one whose workers ended with the same status, and does the rest.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from spawnlaunch.base import errors, events, fatal, machine, records, say, signals
from spawnlaunch.base.signals import signal
from spawnlaunch.node import proc
from spawnlaunch.run import attempts
from spawnlaunch.run.supervisor import Supervisor
from spawnlaunch.run.tree import Tree
from spawnlaunch.workers import launches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch.run.supervisor import MakeObserver

BLIND = (
    "warning: /proc does not show our PID namespace: what a worker leaves outside its process "
    "group is killed only when all have ended, SIGUSR1, SIGUSR2 and SIGWINCH are not passed on, "
    "and no stacks are told; unshare --mount-proc python -m spawnlaunch ... mounts one"
)

WITH_US = (
    "warning: the system refuses sessions or process groups ({}): the signals of this terminal, as "
    "of Ctrl-C, may reach workers directly"
)

# The signals that a guard dies of that cannot go on, by the exit status that the launcher is to
# have: signals of timers that we do not set, so that no other process sends them.
FAULTS = {os.EX_SOFTWARE: signal.SIGVTALRM, os.EX_OSERR: signal.SIGPROF}


class Inherited(records.NamedTuple):
    """The pipes and pids that a guard inherits from its launcher."""

    launcher: int  # pid
    inlet: int  # the end from which it reads what the launcher passes on
    outlet: int  # the launcher's own end of it
    signals: events.SignalPipe  # the launcher's own


def run(
    launch: launches.Launch,
    workers: Sequence[launches.Worker],
    observers: Sequence[MakeObserver],
    inherited: Inherited,
) -> None:
    """Be the guard of these workers, and end this process with the status of the launch."""
    status, fault, supervisor = os.EX_SOFTWARE, os.EX_SOFTWARE, None
    try:
        machine.close(inherited.outlet)
        inherited.signals.close()
        supervisor = _supervisor(launch, workers, observers, inherited)
        status, fault = attempts.carry_out(supervisor, workers), 0
    except errors.UsageError as error:
        status, fault = errors.WRONG_USE, 0
        say.say([f"error: {error}"])
        if supervisor and supervisor.leader:
            supervisor.leader.tell_unable(status, str(error))
    except Exception as error:
        first: BaseException = error  # what followed while the guard tidied up is no cause
        while first.__context__:
            first = first.__context__
        status = fault = os.EX_OSERR if isinstance(first, OSError) else os.EX_SOFTWARE
        leader = supervisor.leader if supervisor and not supervisor.has_begun else None
        tell = leader.tell_unable if leader else None
        fatal.end(error, " in the guard", tell=tell)
    finally:
        with suppress(OSError):
            if fault:
                signals.set_default([FAULTS[fault]])
                machine.pthread_sigmask(signal.SIG_UNBLOCK, [FAULTS[fault]])
                machine.kill(machine.getpid(), FAULTS[fault])
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
    launcher = inherited.launcher
    machine.rename_process("spawnlaunch grd", f"spawnlaunch guard of {launcher}")
    if error := signals.detach(session=all(worker.own_session for worker in workers)):
        say.say([WITH_US.format(error.strerror)])
    machine.prctl(machine.PR_SET_PDEATHSIG, signal.SIGCONT)  # should it be stopped then
    tree = Tree(launch.mark, adopts=machine.prctl(machine.PR_SET_CHILD_SUBREAPER, 1))
    if not proc.is_proc_ours():
        say.say([BLIND])
    machine.pthread_sigmask(signal.SIG_BLOCK, signals.TERMINAL)
    pipe = events.SignalPipe((signals.watched() & signals.STOP) | {signal.SIGCHLD})
    machine.signal(signal.SIGCONT, partial(_look_at_launcher, launcher, machine.getpid()))
    machine.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCONT])
    supervisor = Supervisor(launch, tree, pipe, observers)
    supervisor.listen(inherited.inlet)
    return supervisor


def _look_at_launcher(launcher: int, guard: int, *_: object) -> None:
    """Handle SIGCONT in the guard: the launcher may have died.

    Nothing may hold the guard up then.
    """
    if machine.getppid() != launcher and machine.getpid() == guard:
        events.must_come_back()

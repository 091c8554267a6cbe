"""The guard: a process between the launcher and the workers, which it starts and watches.

    launcher   the process that the user started; takes the signals
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

from spawnlaunch.errors import WRONG_USE, UsageError, internal_error
from spawnlaunch.node.proc import is_proc_ours
from spawnlaunch.records import NamedTuple
from spawnlaunch.run import attempts, kernel, signals
from spawnlaunch.run.decisions import GuardSignalled
from spawnlaunch.run.loop import SignalPipe
from spawnlaunch.run.say import say
from spawnlaunch.run.signals import signal
from spawnlaunch.run.supervisor import Supervisor
from spawnlaunch.run.tree import Tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from spawnlaunch.run.model import LaunchOptions, Worker
    from spawnlaunch.run.worker import Origin

BLIND = (
    "warning: /proc does not show our PID namespace: what a worker leaves outside its process "
    "group is killed only when all have ended, SIGUSR1, SIGUSR2 and SIGWINCH are not passed on, "
    "and no stacks are told; unshare --mount-proc python -m spawnlaunch ... mounts one"
)

FAULT = signal.SIGVTALRM  # of timers that we do not set: nobody sends it


class Guard(NamedTuple):
    """What the launcher knows of its guard."""

    pid: int
    channel: int  # descriptor to write signals to


def start(workers: Sequence[Worker], options: LaunchOptions, origin: Origin) -> Guard:
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
            status = _guard(workers, options, origin, launcher, inlet)
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


def _guard(
    workers: Sequence[Worker], options: LaunchOptions, origin: Origin, launcher: int, inlet: int
) -> int:
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
    tree = Tree(options.launch.mark, adopts=kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1))
    if not is_proc_ours():
        say([BLIND])
    signal.pthread_sigmask(signal.SIG_BLOCK, signals.TERMINAL)
    pipe = SignalPipe((signals.watched() & signals.STOP) | {signal.SIGCHLD})
    supervisor = Supervisor(options, origin, tree, pipe)
    supervisor.watch_signals(GuardSignalled)
    supervisor.watch_launcher(inlet)
    return attempts.carry_out(supervisor, tree, workers, options)

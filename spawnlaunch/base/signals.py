"""The signals that a launcher handles, and their meanings.

| signal                  | meaning                                                        |
|-------------------------|----------------------------------------------------------------|
| INT, TERM, HUP, QUIT    | end the job: SIGTERM to the workers, SIGKILL after the grace   |
| USR1, USR2, WINCH       | for the workers: forwarded to those that catch it; USR2 may    |
|                         | ask for their stacks instead (--stack-on-usr2)                 |
| TSTP, CONT              | stop and continue the workers' process groups                  |
| CHLD                    | a child process has ended                                      |

Every other signal keeps its default action: the launcher may die of it, and the guard then ends the
workers.
"""

from __future__ import annotations

from collections.abc import Iterable

from spawnlaunch.base import machine

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as signal
else:
    import _signal as signal  # Python's `signal` makes enums of it, which takes a millisecond

STOP = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
FORWARD = frozenset({signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH})
JOB_CONTROL = frozenset({signal.SIGTSTP, signal.SIGCONT})
# Asks a worker for the stacks of its threads. Hardly any program uses this signal. A worker that
# does not catch it would die of it, and never gets it. macOS has no real-time signals.
STACKS = int(signal.SIGRTMIN) + 7 if hasattr(signal, "SIGRTMIN") else 0
# A background process that writes to a terminal under `stty tostop` would be stopped by these.
TERMINAL = frozenset({signal.SIGTTIN, signal.SIGTTOU})


def watched() -> frozenset[int]:
    """The signals that a launcher catches.

    Signals that it ignores since its start stay ignored, for the workers too: nohup has SIGHUP
    ignored, and a shell SIGINT and SIGQUIT of a background job.
    """
    ignored = {n for n in STOP - {signal.SIGTERM} if machine.getsignal(n) == signal.SIG_IGN}
    return frozenset((STOP | FORWARD | JOB_CONTROL | {signal.SIGCHLD}) - ignored)


def set_default(signums: Iterable[int]) -> None:
    """Restore the default actions: a forked child inherits handlers, and Python ignores some."""
    for signum in signums:
        machine.signal(signum, signal.SIG_DFL)


def send(pid: int, signum: int, is_group: bool = False) -> bool:
    """Send a signal to a process, or to a group by its leader's pid; False where it has gone.

    False too where it is another user's, which this process may not signal; macOS reports that
    for a group of zombies.
    """
    try:
        (machine.killpg if is_group else machine.kill)(pid, signum)
    except (ProcessLookupError, PermissionError):  # kill(2)
        return False
    return True


def detach(session: bool = True) -> OSError | None:
    """Start a session for this process or, where that is refused, a group; return the error."""
    refused = None
    for leave in (machine.setsid, machine.setpgrp) if session else (machine.setpgrp,):
        try:
            leave()
            break
        except OSError as error:
            refused = error
    return refused

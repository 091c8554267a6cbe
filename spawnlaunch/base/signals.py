"""The signals that a launch knows, and what each of them means for it.

| signal                  | meaning                                                        |
|-------------------------|----------------------------------------------------------------|
| INT, TERM, HUP, QUIT    | end the job: SIGTERM to the workers, SIGKILL after the grace   |
| USR1, USR2, WINCH       | for the workers: forwarded to those that catch it; USR2 may    |
|                         | ask for their stacks instead (--stack-on-usr2)                 |
| TSTP, CONT              | stop and continue the workers' process groups                  |
| CHLD                    | a process of ours has ended                                    |

Everything else keeps its default meaning: the launcher may die of it, and the guard then ends the
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
# Asks a worker for the stacks of its threads. Hardly any program uses this signal, and who does not
# catch it, and so would die of it, is never sent it. There are no real-time signals on macOS.
STACKS = int(signal.SIGRTMIN) + 7 if hasattr(signal, "SIGRTMIN") else 0
# A background process that writes to a terminal under `stty tostop` would be stopped by these.
TERMINAL = frozenset({signal.SIGTTIN, signal.SIGTTOU})


def watched() -> frozenset[int]:
    """The signals that a launcher takes note of.

    Those that its parent had it ignore (nohup does that with SIGHUP, a shell with SIGINT and
    SIGQUIT of a background job) stay ignored, for the workers too.
    """
    kept = {n for n in STOP - {signal.SIGTERM} if machine.getsignal(n) == signal.SIG_IGN}
    return frozenset((STOP | FORWARD | JOB_CONTROL | {signal.SIGCHLD}) - kept)


def set_default(signums: Iterable[int]) -> None:
    """Give up the handlers that a forked child has inherited, or what Python ignores."""
    for signum in signums:
        machine.signal(signum, signal.SIG_DFL)


def send(pid: int, signum: int, is_group: bool = False) -> bool:
    """Signal a process, or a group by the number of its first; False where it is gone.

    Or where it is another user's, and not ours to signal; macOS says so of a group of zombies.
    """
    try:
        (machine.killpg if is_group else machine.kill)(pid, signum)
    except (ProcessLookupError, PermissionError):  # kill(2)
        return False
    return True


def detach(session: bool = True) -> OSError | None:
    """Have a session of our own or, where that is refused, a process group; and what refused it."""
    refused = None
    for own in (machine.setsid, machine.setpgrp) if session else (machine.setpgrp,):
        try:
            own()
            break
        except OSError as error:
            refused = error
    return refused

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

import os
import signal
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

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
    kept = {n for n in STOP - {signal.SIGTERM} if signal.getsignal(n) is signal.SIG_IGN}
    return frozenset((STOP | FORWARD | JOB_CONTROL | {signal.SIGCHLD}) - kept)


def default_in_child(caught: Iterable[int]) -> None:
    """Give up the handlers that a forked child has inherited, but not what is ignored."""
    for signum in caught:
        signal.signal(signum, signal.SIG_DFL)


def send(pid: int, signum: int) -> None:
    """Signal a worker; one that has become another user may not be ours to signal (kill(2))."""
    with suppress(PermissionError):
        os.kill(pid, signum)


def send_group(pid: int, signum: int) -> bool:
    """Signal a process group, by the number of its first process; False where there is none."""
    try:
        os.killpg(pid, signum)
    except (ProcessLookupError, PermissionError):  # macOS says EPERM where all are zombies
        return False
    return True


def exit_status(code: int) -> int:
    """The shell's exit status for a code of subprocess's kind: -n is death by signal n."""
    return code if code >= 0 else 128 - code


def name(signum: int) -> str:
    """
    >>> name(9), name(40)
    ('SIGKILL', 'signal 40')
    """
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"


def how_it_ended(code: int) -> str:
    """
    >>> how_it_ended(7), how_it_ended(-9)
    ('exited with status 7', 'died of SIGKILL')
    """
    return f"exited with status {code}" if code >= 0 else f"died of {name(-code)}"

"""How a worker leaves when it does not reach the end.

    cause                    what is printed             status
    RefusedError             one line                    2
    any other exception      its whole traceback         1
    SIGINT (Ctrl-C)          one line, by rank 0         130

A worker that met an exception may have peers in a collective that will never complete, and its own
exit handlers may wait for them. So it does not run them: os._exit leaves at once, the connections
close, and the peers learn of it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from typing import NoReturn

from .errors import speaks

CRASHED = 1
INTERRUPTED = 128 + signal.SIGINT


def leave_on_interrupt() -> None:
    """From now on SIGINT ends this process with status 130, whatever it is doing.

    Python would raise KeyboardInterrupt in the main thread once that returns from C, and one that
    waits in a collective for a lost peer does not return. So SIGINT is blocked, in this thread and
    in those started later, and one thread does nothing but wait for it. A child process inherits
    the blocked signal.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return  # as a shell has it for jobs in the background; not ours to change
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    threading.Thread(target=_wait_for_interrupt, name="interrupt", daemon=True).start()


def _wait_for_interrupt() -> None:
    signal.sigwait({signal.SIGINT})
    if speaks():
        # The terminal may show half a line: the progress bar.
        start = "\n" if sys.stderr.isatty() else ""
        os.write(2, f"{start}train: interrupted\n".encode())
    os._exit(INTERRUPTED)


def crash(error: BaseException) -> NoReturn:
    """Print the traceback of ``error`` in one piece and leave with status 1."""
    sys.stdout.flush()
    sys.stderr.write("".join(traceback.format_exception(error)))
    sys.stderr.flush()
    os._exit(CRASHED)

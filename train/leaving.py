"""How a worker leaves.

    cause                    what is printed             status
    the run is complete      its result, by rank 0       0
    RefusedError             one line                    2
    StoppedError             one line, by rank 0         1
    any other exception      its whole traceback         1
    SIGINT (Ctrl-C)          one line, by rank 0         130
    preempted, and saved     one line, by rank 0         75

After a complete or a saved run threads are waited for and exit handlers run, but Python does not
take itself apart: gloo's threads may still be there, and then they abort the process.

A worker that met an exception may have peers in a collective that will never complete, and its own
exit handlers may wait for them. So it does not run them: os._exit leaves at once, the connections
close, and the peers learn of it. Before that it leaves a file for the launcher, where one wants it.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import threading
import time
import traceback
from typing import NoReturn

from .errors import speaks

CRASHED = 1
# sysexits.h: EX_TEMPFAIL, "temporary failure; user is invited to retry". A launcher or a batch
# script that sees it starts the same command again, with --resume auto.
PREEMPTED = 75
INTERRUPTED = 128 + signal.SIGINT

TURN_S = 0.05  # for another thread to have its turn


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


def leave(status: int) -> NoReturn:
    """Exit when all is done, with handlers for signals in place until the last moment.

    An interpreter that is taken down gives them up before it ends. Slurm sends SIGTERM to the
    rest of a step when its first task has ended with 75 (srun --kill-on-bad-exit), and that must
    not change their status.
    """
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def crash(error: BaseException) -> NoReturn:
    """Print the traceback of ``error`` in one piece and leave with status 1."""
    # An interrupt that all ranks got may have ended a peer before the thread that waits for ours
    # had its turn: then this is no error but the interrupt.
    time.sleep(TURN_S)
    told = "".join(traceback.format_exception(error))
    write_error_file(error, told)
    sys.stdout.flush()
    sys.stderr.write(told)
    sys.stderr.flush()
    os._exit(CRASHED)


def stop(reason: Exception) -> NoReturn:
    """Leave with status 1 for a reason that all ranks share, and that rank 0 tells."""
    write_error_file(reason, str(reason))
    sys.stdout.flush()
    if speaks():
        sys.stderr.write(f"train: error: {reason}\n")
        sys.stderr.flush()
    os._exit(CRASHED)


def write_error_file(error: BaseException, told: str) -> None:
    """Tell the launcher, as torch.distributed.elastic.multiprocessing.errors.record does.

    It reads the file named by TORCHELASTIC_ERROR_FILE and shows the error of the rank that failed
    first. A file that cannot be written is no reason to lose the traceback.
    """
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path:
        return
    extra = {"py_callstack": told, "timestamp": str(int(time.time()))}
    message = {"message": f"{type(error).__name__}: {error}", "extraInfo": extra}
    try:
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"message": message}, file)
    except OSError as problem:
        sys.stderr.write(f"train: cannot write {path}: {problem.strerror}\n")

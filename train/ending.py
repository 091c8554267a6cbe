"""How a worker ends.

    cause                    what is printed             status
    the run is complete      its result, by rank 0       0
    RefusedError             one line                    2
    StoppedError             one line, by rank 0         1
    any other exception      its whole traceback         1
    SIGINT (Ctrl-C)          one line, by rank 0         130
    preempted, and saved     two lines, by rank 0        75

A run is preempted by SIGUSR1 or SIGTERM (Slurm: --signal=USR1@120, scancel, the end of the time),
by the deadline of --max-time, or by SLURM_JOB_END_TIME, in seconds since 1970 (srun(1), "OUTPUT
ENVIRONMENT"); a process that trains alone also by its first SIGINT. A handler only notes the
signal, which may come twice and to every process of the step. The ranks compare their notes at the
end of a step, so that all of them save the same step.

After a complete or a saved run the process waits for its threads and runs exit handlers, but the
interpreter is not shut down: gloo's threads may still run, and would then abort the process.

A worker that met an exception may have peers in a collective that will never complete, and its own
exit handlers may wait for them. So it does not run them: os._exit leaves at once, its connections
close, and the peers learn of it. Before that it writes an error file for the launcher, where the
launcher names one.
"""

from __future__ import annotations

import atexit
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker, util
from typing import NoReturn

from .errors import prints_messages, wait_for_another, write_stderr

SIGNALS = frozenset({signal.SIGUSR1, signal.SIGTERM})

noted: list[str] = []  # the signals that have come
interrupt_saves = threading.Event()  # while a process trains alone


def note_signals() -> None:
    """Let SIGUSR1 and SIGTERM ask for a save from now on, however often they come."""
    for number in SIGNALS:
        signal.signal(number, lambda signum, _: noted.append(signal.Signals(signum).name))


@contextmanager
def block_signals_in_children() -> Iterator[None]:
    """Block SIGUSR1 and SIGTERM in processes started in this block: Slurm signals every process.

    A blocked signal stays blocked in children, from their first instruction on and across exec.
    At the end of the block this process receives what was sent in between.

    When this process ends, multiprocessing sends SIGTERM to the loader processes, which have it
    blocked, and waits for them; so they are killed before that.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    # When multiprocessing starts its tracker, it unblocks SIGTERM and SIGINT in the starting thread
    # whether they were blocked or not. So the tracker is started first, and the signals are blocked
    # again. It cleans up after a rank that ended in haste, and need not warn of that.
    warnings = os.environ.get("PYTHONWARNINGS", "")
    quiet = f"{warnings},ignore:resource_tracker:UserWarning".lstrip(",")
    # Helpers are "python -c", which would take a signal.py of the working directory for Python's.
    with _environment(PYTHONSAFEPATH="1"):
        with _environment(PYTHONWARNINGS=quiet):
            resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_SETMASK, before | SIGNALS)
        others = multiprocessing.active_children()
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            for child in set(multiprocessing.active_children()).difference(others):
                # It runs at the exit of this process, and not in processes that it has forked.
                util.Finalize(None, child.kill, exitpriority=0)


@contextmanager
def _environment(**changes: str) -> Iterator[None]:
    """Set these variables for processes that are started in this block."""
    before = {name: os.environ[name] for name in changes if name in os.environ}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name in changes:
            del os.environ[name]
        os.environ.update(before)


CRASHED = 1
# sysexits.h: EX_TEMPFAIL, "temporary failure; user is invited to retry". A launcher or a batch
# script that sees it starts the same command again, with --resume auto.
PREEMPTED = 75
INTERRUPTED = 128 + signal.SIGINT

TURN_S = 0.05  # for another thread to have its turn


def leave_on_interrupt() -> None:
    """Let SIGINT end this process with status 130 from now on, also inside a collective.

    Only the first SIGINT while ``interrupt_saves`` is set asks for a save instead.

    Python would raise KeyboardInterrupt in the main thread after that returns from C, and a thread
    that waits in a collective for a lost peer does not return. So SIGINT is blocked, in this thread
    and in those started later, and one thread does nothing but wait for it. A child process
    inherits the blocked signal.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return  # as a shell does for jobs in the background
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    threading.Thread(target=_wait_for_interrupt, name="interrupt", daemon=True).start()


def _wait_for_interrupt() -> None:
    signal.sigwait({signal.SIGINT})
    # The terminal may show half a line: the progress bar.
    start = "\n" if sys.stderr.isatty() else ""
    if interrupt_saves.is_set():
        noted.append("SIGINT")
        write_stderr(f"{start}train: saves and ends; SIGINT once more ends at once\n")
        signal.sigwait({signal.SIGINT})
    if prints_messages():
        write_stderr(f"{start}train: interrupted\n")
    os._exit(INTERRUPTED)


def leave(status: int) -> NoReturn:
    """Run exit handlers and exit, with the handlers of signals in place until the last moment.

    An interpreter that is shut down removes them before it ends. Slurm sends SIGTERM to the rest of
    a step when its first task has ended with 75 (srun --kill-on-bad-exit), and that must not change
    their status.
    """
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()  # noqa: SLF001 - else only the end of the interpreter runs them
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def crash(error: BaseException) -> NoReturn:
    """Print the traceback of ``error`` in one piece and leave with status 1."""
    # An interrupt of all ranks may have ended a peer before this rank's thread for SIGINT ran: then
    # the error is only a consequence, and that thread now ends the process first.
    time.sleep(TURN_S)
    text = "".join(traceback.format_exception(error))
    _end(error, text, text)


def follow() -> NoReturn:
    """Exit with status 1, after the rank that prints the traceback."""
    wait_for_another()
    os._exit(CRASHED)


def stop(reason: Exception) -> NoReturn:
    """Exit with status 1 for a reason that all ranks share; rank 0 prints it."""
    _end(reason, str(reason), f"train: error: {reason}\n" if prints_messages() else "")


def _end(error: BaseException, text: str, message: str) -> NoReturn:
    """Exit with status 1, even if the message can no longer be written."""
    if path := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        message = _write_error_file(path, error, text) + message
    with suppress(Exception):  # a broken pipe, a full disk, or an object of the task in its place
        sys.stdout.flush()
    write_stderr(message)
    os._exit(CRASHED)


def _write_error_file(path: str, error: BaseException, text: str) -> str:
    """Report to the launcher as torch.distributed.elastic.multiprocessing.errors.record does.

    It reads this file and shows the text of the rank that failed first, here without a traceback
    where a reason needs none. If the file cannot be
    written, the reason is returned, so that the traceback is not lost.
    """
    extra = {"py_callstack": text, "timestamp": str(int(time.time()))}
    message = {"message": f"{type(error).__name__}: {error}", "extraInfo": extra}
    try:
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"message": message}, file)
    except OSError as problem:
        return f"train: cannot write {path}: {problem.strerror}\n"
    return ""

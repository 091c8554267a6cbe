"""A sample: a fresh process that sits down as the arm says, before it has touched anything.

The process of a rank has imported torch and the workloads, and done nothing else. For every sample
it forks, and the child takes its seat by the same two calls as a worker of the launcher, before it
starts a thread, allocates an array or makes a DataLoader worker. So masks, memory and threads are
what they would be in a worker, and a sample costs a fork in place of a start of Python and an
import. To move one process from seat to seat would leave it the memory and the threads of the seat
before.

The only other thread of a rank's process is that of rank 0's store, which no child uses.
"""

import contextlib
import json
import os
import select
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from spawnlaunch.binding import apply
from spawnlaunch.binding.plan import Binding
from spawnlaunch.run import blas, kernel
from spawnlaunch.values import PREFERRED_MEM

LOOK_AGAIN_S = 1.0  # whether another rank has failed; rarely, for looking disturbs
TAIL_CHARS = 4000  # of what went wrong
STOPPED = "another rank failed"
POLL_S = 0.02  # where there are no pidfds

Stopped = Callable[[], bool]


class FailedError(Exception):
    """A sample could not be taken on some rank; the message says why."""


class Sample(NamedTuple):
    """What a child measured, or why it did not."""

    values: dict[str, Any]  # numbers above 0
    error: str = ""


def fork(seat: Binding, run: Callable[[], NoReturn]) -> int:
    """A child in this seat that does `run`; the result is its pid."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            kernel.die_with_parent(parent)
            os.setpgid(0, 0)
            _sit_down(seat)
            run()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return pid


def _sit_down(seat: Binding) -> None:
    refusal = apply.pin(seat)
    if refusal:
        raise OSError(refusal)  # a sample from another seat would be a lie
    apply.place_memory(seat, PREFERRED_MEM)


def measured(seat: Binding, measure: Callable[[], dict[str, Any]], stopped: Stopped) -> Sample:
    """What a child in this seat measures, or finds out; it goes through JSON."""
    reading, writing = os.pipe()

    def run() -> NoReturn:
        os.environ["OMP_NUM_THREADS"] = str(seat.threads)
        blas.set_threads(seat.threads)
        try:
            said = json.dumps({"values": measure()})
        except Exception:
            said = json.dumps({"error": traceback.format_exc()[-TAIL_CHARS:]})
        os.write(writing, said.encode())  # less than a pipe holds: nobody reads yet
        os._exit(0)

    pid = fork(seat, run)
    os.close(writing)
    status = wait(pid, stopped)
    if status is None:
        os.close(reading)
        return Sample({}, STOPPED)
    with open(reading, "rb") as pipe:
        said = pipe.read()
    if not said:
        return Sample({}, f"the process of the sample ended with {describe(status)}")
    return Sample(**{"values": {}, **json.loads(said)})


def wait(pid: int, stopped: Stopped) -> int | None:
    """The exit status of a child, negative for a signal; None: it was killed as `stopped` said."""
    pidfd, killed = kernel.open_pidfd(pid), False
    try:
        while True:
            if pidfd is None:
                time.sleep(POLL_S)
            else:
                select.select([pidfd], [], [], LOOK_AGAIN_S)
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return None if killed else os.waitstatus_to_exitcode(status)
            if stopped():
                killed = True
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
    finally:
        if pidfd is not None:
            os.close(pidfd)


def describe(status: int) -> str:
    """An exit status in words."""
    return f"status {status}" if status >= 0 else signal.Signals(-status).name

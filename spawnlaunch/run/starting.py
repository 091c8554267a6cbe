"""From a fork of the guard to a worker."""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from spawnlaunch.records import NamedTuple
from spawnlaunch.run import kernel
from spawnlaunch.run.environment import ITS_OWN, TASK_PID
from spawnlaunch.run.say import say
from spawnlaunch.run.signals import set_default
from spawnlaunch.run.worker import CANNOT_EXECUTE, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import NoReturn, TypeAlias

    from spawnlaunch.run.output import Output

    # Turns this process into a worker, which begins with these signals blocked.
    BecomeWorker: TypeAlias = Callable[[Worker, Iterable[int]], NoReturn]


class Origin(NamedTuple):
    """What workers have from the launcher."""

    group: int  # its process group, which a lone worker shares
    mask: frozenset[int]  # its signal mask when it was started


def fork_worker(
    worker: Worker, origin: Origin, caught: Iterable[int], output: Output, become: BecomeWorker
) -> int:
    """Fork a process that becomes the worker; the result is its pid.

    `caught` are the signals that this process has handlers for. Raises OSError where there can be
    no other process.
    """
    guard = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            set_default(caught)
            kernel.die_with_parent(guard)
            output.take()
            become_worker(worker, origin, become)
        except Exception as error:
            say([f"{worker.name}: cannot start: {error!r}"])
        finally:
            os._exit(CANNOT_EXECUTE)  # whatever happened: never run on as a second parent
    return pid


def become_worker(worker: Worker, origin: Origin, become: BecomeWorker) -> NoReturn:
    """Slurm tells each task its own pid; a worker that shares the terminal is in its group."""
    if not worker.own_session:
        with suppress(OSError):  # in another session, or ended: there is no terminal to share
            os.setpgid(0, origin.group)
    if worker.environ.get(TASK_PID) == ITS_OWN:
        worker = worker._replace(environ={**worker.environ, TASK_PID: str(os.getpid())})
    become(worker, origin.mask)


def refused(worker: Worker, error: OSError) -> str:
    """Why the worker could not be started: no more processes or descriptors, or no file for it."""
    what = f"cannot start {worker.name}: {error.strerror}"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return f"{what}; see ulimit -n"
    if error.filename:
        return f"{what}: {error.filename}"
    if error.errno in (errno.EAGAIN, errno.ENOMEM):  # of fork(2)
        return f"{what}; see ulimit -u, and the pids limit of the cgroup"
    return what

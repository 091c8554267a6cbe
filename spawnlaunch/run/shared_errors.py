"""An error or an explanation that many tasks of a step have in common is printed once.

That matters where the outputs of all tasks come together: below a daemon of the resource manager.
Wrong flags are the same in every task, and rank 0 prints the error. Any other error may be one
node's, so the first task of each node that meets it prints it: it holds a lock that is named after
the daemon and the error, an abstract socket as those of `world.host`. A task that finds the lock
taken is silent.

A silent task waits before it ends. srun --kill-on-bad-exit ends all tasks with the first, and the
task that prints may not have come so far. A task that is killed while it waits has the status of
the error all the same: else srun's own were 143, and no batch script could tell a wrong command
line, which fails in every attempt, from an error that another attempt may mend. Where there is no
daemon all tasks print: a repeated line is better than a lost one.
"""

from __future__ import annotations

from zlib import crc32

from spawnlaunch.base import errors, events, machine, say
from spawnlaunch.base.signals import signal
from spawnlaunch.node import proc
from spawnlaunch.world import host, identity, managers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAMS = ("OMPI_NUM_APP_CTX", "SLURM_HET_SIZE")  # their number: `mpirun a : b`, `srun a : b`
WAIT_S = 10.0  # for rank 0, which reads the same files from the same file system as all others
NEIGHBOURS_S = 5.0  # for the other tasks of this node, or, after rank 0 has spoken, of all
REFUSED_S = 1.0  # for launchers that wait for this one no longer, and end by themselves


def daemon_of_many(environ: identity.Environ) -> int | None:
    """The daemon above this task, which brings together the output of all tasks.

    None where nothing has started tasks, for the only task, and in a batch script or a shell.
    """
    detected = managers.detect(environ)
    is_alone = bool(detected) and (
        detected[0].kind != identity.TASKS
        or _answer(lambda manager: manager.world_size(), environ) == 1
    )
    return None if is_alone else proc.nearest(managers.STARTERS)


def refuse(
    error: errors.UsageError,
    environ: identity.Environ,
    program: str = "spawnlaunch",
    tell: Callable[[int, str], bool] = lambda *_: False,
) -> None:
    """Print the error, or leave it to another task; among several tasks this ends the process.

    `tell` tells the launchers of other nodes, which wait for this one no longer; False: there are
    none.
    """
    line = f"{program}: error: {error}\n"
    daemon = None if machine.isatty(2) else daemon_of_many(environ)
    if daemon is None:
        say.write(line)
        tell(errors.WRONG_USE, str(error))
        return
    machine.signal(signal.SIGTERM, lambda *_: machine.exit_now(errors.WRONG_USE))
    rank = _answer(lambda manager: manager.rank(), environ)
    is_single_program = all(environ.get(name, "1") == "1" for name in PROGRAMS)
    if rank is None or not (isinstance(error, errors.FlagsError) and is_single_program):
        _lock = _print_for_node(f"{program}: error: {machine.uname().nodename}: {error}\n", daemon)
    elif rank == 0:
        say.write(line)
    wait_s = WAIT_S if rank and isinstance(error, errors.FlagsError) else NEIGHBOURS_S
    events.patient_sleep(REFUSED_S if tell(errors.WRONG_USE, str(error)) else wait_s)
    # An interpreter that ends has given up its handlers, and dies of SIGTERM.
    machine.exit_now(errors.WRONG_USE)


def _answer(
    read: Callable[[identity.Manager], identity.Fact | None], environ: identity.Environ
) -> int | None:
    """The rank of this task, or the number of tasks; None where it cannot be read."""
    try:
        detected = managers.detect(environ)
        fact = read(detected[0]) if detected else None
    except errors.UsageError:
        return None
    return fact.value if fact else None


def _print_for_node(line: str, daemon: int) -> object:
    """Print the line, unless another task of this node holds the lock.

    The result is the lock, which is held as long as there is a reference to it.
    """
    name = f"\0spawnlaunch-error-{daemon}-{crc32(line.encode(errors='backslashreplace'))}"
    lock = host.claim(name)
    if lock:  # else another task has said it, or is about to
        say.write(line)
    return lock

"""Lines for errors to advise: what the user typed, but for what has to be otherwise.

Only errors need this, so only they import it.
"""

from __future__ import annotations

import sys
from shlex import join

from spawnlaunch.request import Request, words_of
from spawnlaunch.world import srun
from spawnlaunch.world.facts import Environ
from spawnlaunch.world.manager import Manager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

# What the flags of one machine, or of nodes by hand, say, a manager says for each launcher.
PLACES = ("--standalone", "--nnodes", "--node-rank")
OF_A_LAUNCHER = (*PLACES, "--nproc", "--rdzv-backend", "--rdzv-endpoint")


def alone(request: Request) -> str:
    """For this machine alone."""
    return _typed(request, ("--standalone",), PLACES)


def as_typed(request: Request) -> str:
    """As it is."""
    return _typed(request, (), ())


def can_be_tasks(request: Request) -> bool:
    """Whether no flag asks for what needs a launcher above the workers."""
    return not request.need_parent and (request.log_dir is None or bool(request.redirects.used))


def task_per_rank(request: Request, manager: Manager, environ: Environ, n: int) -> str:
    """For `n` tasks on a node, each a rank."""
    return manager.starter(n, environ, _typed(request, (), OF_A_LAUNCHER))


def launcher_per_node(request: Request, manager: Manager, environ: Environ, n: int) -> str:
    """For one launcher on each node, with `n` workers unless the user said how many."""
    nproc = () if request.nproc is not None else (f"--nproc={n}",)
    return manager.starter(1, environ, _typed(request, nproc, PLACES))


def with_nproc(request: Request, manager: Manager | None, environ: Environ, n: int) -> str:
    """For `n` workers on each node, as a number."""
    if manager is None:
        return _typed(request, (f"--nproc={n}",), ("--nproc",))
    return manager.starter(1, environ, _typed(request, (f"--nproc={n}",), ("--nproc",)))


def tasks_of_the_job(request: Request, environ: Environ) -> str:
    """For the tasks that a Slurm job was asked for, each a rank."""
    return srun.as_the_job(environ, _typed(request, (), OF_A_LAUNCHER))


def _typed(request: Request, more: Collection[str], without: Collection[str]) -> str:
    """The command line, with other flags."""
    kept = [flag for flag in request.flags if flag.partition("=")[0] not in without]
    return join([*_launcher(), *more, *kept, *words_of(request.program)])


def _launcher() -> list[str]:
    """How this launcher was called: `python -m spawnlaunch`, with the interpreter's path."""
    return sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1]


def requeue(most: int) -> str:
    """What a batch script says behind srun to be started anew, up to `most` times.

    Not after status 2: what was typed wrong stays wrong. SLURM_RESTART_COUNT is not set in the
    first attempt (sbatch(1)).
    """
    return (
        "status=$?; [ $status -ne 0 ] && [ $status -ne 2 ] && "
        f'[ "${{SLURM_RESTART_COUNT:-0}}" -lt {most} ] && scontrol requeue $SLURM_JOB_ID; '
        "exit $status"
    )

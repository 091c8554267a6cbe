"""Refuse launches that the user cannot have meant, with the command lines to run instead.

Such a line is the user's own command line with the necessary changes.
Only errors need this module, so only they import it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from shlex import join
from shutil import which

from spawnlaunch.base import errors
from spawnlaunch.cli.flags import SCRIPT, Request, words_of
from spawnlaunch.node import proc
from spawnlaunch.world import identity, managers
from spawnlaunch.world.managers import slurm

# Flags for one machine or for nodes by hand; a manager gives each launcher these values.
PLACES = ("--standalone", "--nnodes", "--node-rank")
CALLED = os.path.abspath(f"{__file__}/../../calling/called.py")
OTHERS = "(all other options as they were, and no -n)"
WRAPPERS = "a wrapper (env -i, srun --export=NONE, sudo, a container)"
OF_A_LAUNCHER = (*PLACES, "--nproc", "--rdzv-backend", "--rdzv-endpoint")


def typed(request: Request, *more: str, without: Collection[str] = ()) -> str:
    """Return the user's command line with the flags `more`, and without the flags `without`."""
    flags = [*more, *(flag for flag in request.flags if flag.partition("=")[0] not in without)]
    if sys.argv[0] == CALLED:  # by spawnlaunch.launch
        # Not the file of --result, which spawnlaunch.launch itself has named.
        pairs = (flag.strip("-").partition("=") for flag in flags if sys.argv[2] not in flag)
        keywords = [f"{name.replace('-', '_')}={value or True!r}" for name, _, value in pairs]
        return f"python SCRIPT with launch({', '.join(('...', *keywords))})"
    # How this launcher was called: `python -m spawnlaunch`, or `python PATH/spawnlaunch`.
    launcher = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1]
    if len(launcher) == 2 and which(SCRIPT) == launcher[1]:
        launcher = [SCRIPT]
    return join([*launcher, *flags, *words_of(request.program)])


def on_this_machine(request: Request) -> str:
    """Return the command line for this machine alone."""
    return typed(request, "--standalone", without=PLACES)


def launcher_per_node(request: Request, manager: identity.Manager, n: int) -> str:
    """Return the line for one launcher per node, with `n` workers where --nproc is not given."""
    nproc = () if request.nproc is not None else (f"--nproc={n}",)
    more = (*manager.launcher_flags(), *nproc)
    return manager.start_line(typed(request, *more, without=PLACES), 1)


def _task_per_rank(request: Request, manager: identity.Manager, n: int) -> str:
    """Return the line for `n` tasks per node; "" where a flag needs a launcher above them."""
    if request.need_parent or (request.log_dir is not None and request.redirects is None):
        return ""
    return manager.start_line(typed(request, without=OF_A_LAUNCHER), n)


def refuse_several_launchers(evidence: identity.Evidence, n: int, source: str) -> None:
    """Raise UsageError for a launcher in each of several tasks on a node: too many workers."""
    request, manager = evidence.request, evidence.manager
    lines = [f"one launcher per node: {launcher_per_node(request, manager, n)}"]
    if line := _task_per_rank(request, manager, n):
        lines.append(f"one task per rank: {line}")
    raise errors.UsageError(
        f"{manager.name} has started {n} tasks on a node already ({source}), so a launcher in each "
        f"of them cannot start workers too; run {OTHERS} {'; or '.join(lines)}"
    )


def refuse_idle_shell(
    evidence: identity.Evidence, nodes: identity.Fact | None, tasks: identity.Fact | None
) -> None:
    """Raise UsageError in a job's shell, without srun, where other nodes or tasks would be idle."""
    request, manager = evidence.request, evidence.manager
    counts = ((nodes, "nodes"), (tasks, "tasks"))
    sizes = [f"{fact.value} {noun} ({fact.source})" for fact, noun in counts if fact]
    line = "" if request.nproc is not None else _task_per_rank(request, manager, 0)
    if not line:
        n = -(-tasks.value // nodes.value) if tasks and nodes else 1
        line = launcher_per_node(request, manager, n)
    raise errors.UsageError(
        f"this is a shell of a Slurm job with {' and '.join(sizes)}, not a step of it: srun is "
        f"missing; run {line}; or, for this machine alone: {on_this_machine(request)}"
    )


def refuse_missing(request: Request, missing: Collection[str]) -> None:
    """Raise UsageError where some of Slurm's variables are missing from the environment."""
    names, them = " and ".join(missing), "it" if len(missing) == 1 else "them"
    raise errors.UsageError(
        f"{names} {'is' if len(missing) == 1 else 'are'} missing here, which Slurm sets beside "
        f"variables that are here: {WRAPPERS} may have removed {them}; pass {them} on, or, for "
        f"this machine alone, run {on_this_machine(request)}"
    )


def refuse_task_without_variables(request: Request, pid: int) -> None:
    """Raise UsageError for one of several tasks that has lost the manager's variables.

    `env -i` removes them, and so does a container that begins with a clean environment. Without
    them four tasks are four jobs of one rank, which all succeed and have computed the same. `pid`
    is the process that starts tasks on this node.
    """
    starter = next(name for above, name in proc.above() if above == pid)
    manager, size = managers.STARTERS[starter]
    environ = proc.environ_below((starter,)) or {}
    if starter == slurm.DAEMON and slurm.started_by().partition(".")[2] in slurm.NO_STEPS:
        nodes = environ.get(slurm.JOB_NODES, "1")
        if nodes == "1" and (request.nproc is not None or environ.get(slurm.JOB_TASKS, "1") == "1"):
            return
    elif environ.get(size) == "1":
        return
    raise errors.UsageError(
        f"{starter} (pid {pid}) is above this process, and none of {manager}'s variables ({size}) "
        f"is here: {WRAPPERS} may have removed them, so each task would be a job of its own, or "
        "this is a script that lacks the command that starts tasks; pass them on, or, for this "
        f"machine alone, run {on_this_machine(request)}"
    )

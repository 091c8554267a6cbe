"""Launches that cannot be what their user means: refused, with the lines to type instead.

A line is what the user typed, but for what has to be otherwise.
Only errors need this, so only they import it.
"""

from __future__ import annotations

import os
import sys
from shlex import join, quote

from spawnlaunch import errors
from spawnlaunch.flags import Request, words_of
from spawnlaunch.node import proc
from spawnlaunch.world import identity, managers
from spawnlaunch.world.managers import slurm
from spawnlaunch.world.managers.slurm import srun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

# What the flags of one machine, or of nodes by hand, say, a manager says for each launcher.
PLACES = ("--standalone", "--nnodes", "--node-rank")
CALLED = os.path.abspath(f"{__file__}/../../calling/launcher.py")
OTHERS = "(all other options as they were, and no -n)"
OF_A_LAUNCHER = (*PLACES, "--nproc", "--rdzv-backend", "--rdzv-endpoint")


def typed(request: Request, *more: str, without: Collection[str] = ()) -> str:
    """The command line as it was typed, with other flags."""
    flags = [*more, *(flag for flag in request.flags if flag.partition("=")[0] not in without)]
    if sys.argv[0] == CALLED:
        return _called(flags, *sys.argv[1:3])
    # How this launcher was called: `python -m spawnlaunch`, with the interpreter's path.
    launcher = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1]
    return join([*launcher, *flags, *words_of(request.program)])


def _called(flags: list[str], caller: str, directory: str) -> str:
    """The command line of the process that called spawnlaunch.launch, and what to call it with."""
    words = (proc.read(caller, "cmdline") or "python\0script.py\0").split("\0")[:-1]
    # Not the file of --result, which spawnlaunch.launch itself has named.
    pairs = (flag.strip("-").partition("=") for flag in flags if directory not in flag)
    keywords = [f"{name.replace('-', '_')}={value or True!r}" for name, _, value in pairs]
    return f"{join(words)} with launch({', '.join(('...', *keywords))})"


def alone(request: Request) -> str:
    """For this machine alone."""
    return typed(request, "--standalone", without=PLACES)


def as_tasks(request: Request) -> str:
    """For a task that is a rank."""
    return typed(request, without=OF_A_LAUNCHER)


def can_be_tasks(request: Request) -> bool:
    """Whether no flag asks for what needs a launcher above the workers."""
    return not request.need_parent and (request.log_dir is None or request.redirects is not None)


def started(manager: identity.Manager, n: int, environ: identity.Environ, command: str) -> str:
    """The line by which a manager starts a command `n` times on each node."""
    if manager in (slurm.STEP, slurm.SHELL):
        return srun.per_node(environ, command) if n == 1 else srun.per_rank(environ, command)
    nodes = manager.answer("nnodes", environ)
    return manager.starter.format(n=n, command=command, nodes=nodes.value if nodes else "N")


def launcher_per_node(
    request: Request, manager: identity.Manager, environ: identity.Environ, n: int
) -> str:
    """For one launcher on each node, with `n` workers unless the user said how many."""
    nproc = () if request.nproc is not None else (f"--nproc={n}",)
    return started(manager, 1, environ, typed(request, *nproc, without=PLACES))


def refuse_several_launchers(
    it: identity.Evidence, manager: identity.Manager, several: identity.Fact
) -> None:
    """A launcher in each of several tasks on a node would start too many workers."""
    request, environ, n = it.request, it.environ, several.value
    lines = [f"one launcher per node: {launcher_per_node(request, manager, environ, n)}"]
    if can_be_tasks(request):
        line = started(manager, n, environ, as_tasks(request))
        lines.append(f"one task per rank: {line}")
    raise errors.UsageError(
        f"{manager.name} has started {n} tasks on a node already ({several.source}), so a launcher "
        f"in each of them cannot start workers too; type {OTHERS} " + "; or ".join(lines)
    )


def refuse_idle_shell(
    it: identity.Evidence,
    manager: identity.Manager,
    nodes: identity.Fact | None,
    tasks: identity.Fact | None,
) -> None:
    """The shell of a job would leave the job's other nodes or tasks unused: srun was forgotten."""
    request, environ = it.request, it.environ
    counts = ((nodes, "nodes"), (tasks, "tasks"))
    has = [f"{fact.value} {what} ({fact.source})" for fact, what in counts if fact]
    if request.nproc is None and can_be_tasks(request):
        line = srun.as_the_job(environ, as_tasks(request))
    else:
        n = -(-tasks.value // nodes.value) if tasks and nodes else 1
        line = launcher_per_node(request, manager, environ, n)
    raise errors.UsageError(
        f"this is a shell of a Slurm job with {' and '.join(has)}, not a step of it: srun is "
        f"missing; type {line}; or, for this machine alone: {alone(request)}"
    )


def refuse_uneven(it: identity.Evidence, nproc: identity.Fact, nnodes: identity.Fact) -> None:
    """Raise UsageError where nothing shows that the other nodes count `nproc` workers too.

    For --nproc gpu, auto or cpu each launcher counts what it has. With 5 devices here and 1 there
    one would start ranks 0 to 4 of 10, and the other rank 1 of 2. So the resource manager must have
    said that all nodes have as many.
    """
    request = it.request
    what = "CPUs" if request.nproc == "cpu" else "GPUs"
    told = it.ask(f"{what.lower()}_per_node")
    if told is not None and told.value == nproc.value:
        return
    each = f"each of the {nnodes.value} nodes"
    shown = f"nothing says how many {what} {each} has"
    if told is not None:
        shown = f"{told.source} says {told.value} {what} of {each}"
    line = typed(request, f"--nproc={nproc.value}", without=("--nproc",))
    if it.manager:
        line = started(it.manager, 1, it.environ, line)
    raise errors.UsageError(
        f"--nproc {request.nproc} is {nproc.value} on this node, and {shown}, so the ranks of all "
        f"nodes might not fit together; if each has {nproc.value}, type {line}; if not, start one "
        "task per rank, without --nproc"
    )


def refuse_task_without_variables(request: Request, pid: int, starter: str) -> None:
    """Raise UsageError where a task of several, below a starter, would not know of the others.

    `env -i` takes a manager's variables away, and so does a container that begins with a clean
    environment. Without them four tasks are four jobs of one rank, which all end well and have
    computed the same.
    """
    manager, prefixes, size = managers.STARTERS[starter]
    given = proc.environ_below((starter,)) or {}
    if starter == slurm.DAEMON and slurm.started_by().partition(".")[2] in slurm.NO_STEPS:
        _refuse_the_first(request, given)
        return
    if given.get(size) == "1":
        return
    names = (name for _, name in proc.above())
    if starter != next(name for name in names if name.startswith((starter, managers.BROKER))):
        there = {"FLUX_JOB_NNODES": given.get(size, "")}
        line = started(managers.load("tables", "FLUX"), 1, there, typed(request, without=PLACES))
        raise errors.UsageError(
            "this is a script or a shell of a Flux instance of several nodes, not a task of it: "
            f"flux run is missing; type {line}; or, for this machine alone: {alone(request)}"
        )
    variables = f'$(env | grep -E "^({prefixes})" | grep -v " ")'
    kept = quote(f'exec env -i PATH="$PATH" {variables} {typed(request)}')
    raise errors.UsageError(
        f"{starter} (pid {pid}) is above this process, and none of {manager}'s variables is here, "
        "as behind env -i or in a container with --cleanenv, so each task would be a job of its "
        f"own; to hand them on, have {manager} start sh -c {kept}; if each task is to be a job of "
        f"its own, type {alone(request)}"
    )


def _refuse_the_first(request: Request, given: identity.Environ) -> None:
    """Raise UsageError in a batch script or a shell, of which there is one, for several tasks."""
    tasks, nodes = (given.get(name, "1") for name in (slurm.JOB_TASKS, slurm.JOB_NODES))
    if (tasks, nodes) == ("1", "1") or (request.nproc is not None and nodes == "1"):
        return
    raise errors.UsageError(
        f"this Slurm job has {tasks} tasks ({slurm.JOB_TASKS}) on {nodes} nodes "
        f"({slurm.JOB_NODES}), and the launcher has lost Slurm's variables, as behind env -i, so "
        f"it would use this node alone; type srun {typed(request)}, with nothing between "
        f"that takes variables away, or, for this machine alone: {alone(request)}"
    )

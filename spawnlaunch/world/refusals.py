"""Launches that cannot be what their user means: refused, with the lines to type instead.

Only errors need this, so only they import it.
"""

from __future__ import annotations

from spawnlaunch.errors import UsageError
from spawnlaunch.world import advice
from spawnlaunch.world.managers import STARTERS, slurm
from spawnlaunch.world.processes import environ_below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch.request import Request
    from spawnlaunch.world.model import Environ, Evidence, Fact, Manager


def refuse_several_launchers(it: Evidence, manager: Manager, several: Fact) -> None:
    """A launcher in each of several tasks on a node would start too many workers."""
    request, environ, n = it.request, it.environ, several.value
    lines = [f"one launcher per node: {advice.launcher_per_node(request, manager, environ, n)}"]
    if advice.can_be_tasks(request):
        line = advice.started(manager, n, environ, advice.as_tasks(request))
        lines.append(f"one task per rank: {line}")
    raise UsageError(
        f"{manager.name} has started {n} tasks on a node already ({several.source}), so a launcher "
        f"in each of them cannot start workers too; type (all other options as they were) "
        + "; or ".join(lines)
    )


def refuse_idle_shell(
    it: Evidence, manager: Manager, nodes: Fact | None, tasks: Fact | None
) -> None:
    """The shell of a job would leave the job's other nodes or tasks unused: srun was forgotten."""
    request, environ = it.request, it.environ
    counts = ((nodes, "nodes"), (tasks, "tasks"))
    has = [f"{fact.value} {what} ({fact.source})" for fact, what in counts if fact]
    if request.nproc is None and advice.can_be_tasks(request):
        line = advice.srun_as_the_job(environ, advice.as_tasks(request))
    else:
        n = -(-tasks.value // nodes.value) if tasks and nodes else 1
        line = advice.launcher_per_node(request, manager, environ, n)
    raise UsageError(
        f"this is a shell of a Slurm job with {' and '.join(has)}, not a step of it: srun is "
        f"missing; type {line}; or, for this machine alone: {advice.alone(request)}"
    )


def refuse_uneven(it: Evidence, nproc: Fact, nnodes: Fact) -> None:
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
    line = advice.typed(request, f"--nproc={nproc.value}", without=("--nproc",))
    if it.manager:
        line = advice.started(it.manager, 1, it.environ, line)
    raise UsageError(
        f"--nproc {request.nproc} is {nproc.value} on this node, and {shown}, so the ranks of all "
        f"nodes might not fit together; if each has {nproc.value}, type {line}; if not, start one "
        "task per rank, without --nproc"
    )


def refuse_copies(request: Request, pid: int, starter: str) -> None:
    """Raise UsageError where a task of several, below a starter, would not know of the others.

    `env -i` takes a manager's variables away, and so does a container that begins with a clean
    environment. Without them four tasks are four jobs of one rank, which all end well and have
    computed the same.
    """
    manager, prefixes, size = STARTERS[starter]
    given = environ_below((starter,)) or {}
    if starter == slurm.DAEMON and slurm.started_by().partition(".")[2] in slurm.NO_STEPS:
        _refuse_the_first(request, given)
        return
    if given.get(size) == "1":
        return
    from shlex import quote

    variables = f'$(env | grep -E "^({prefixes})" | grep -v " ")'
    kept = quote(f'exec env -i PATH="$PATH" {variables} {advice.typed(request)}')
    raise UsageError(
        f"{starter} (pid {pid}) is above this process, and none of {manager}'s variables is here, "
        "as behind env -i or in a container with --cleanenv, so each task would be a job of its "
        f"own; to hand them on, have {manager} start sh -c {kept}; if each task is to be a job of "
        f"its own, type {advice.alone(request)}"
    )


def _refuse_the_first(request: Request, given: Environ) -> None:
    """Raise UsageError in a batch script or a shell, of which there is one, for several tasks."""
    tasks, nodes = (given.get(name, "1") for name in (slurm.JOB_TASKS, slurm.JOB_NODES))
    if (tasks, nodes) == ("1", "1") or (request.nproc is not None and nodes == "1"):
        return
    raise UsageError(
        f"this Slurm job has {tasks} tasks ({slurm.JOB_TASKS}) on {nodes} nodes "
        f"({slurm.JOB_NODES}), and the launcher has lost Slurm's variables, as behind env -i, so "
        f"it would use this node alone; type srun {advice.typed(request)}, with nothing between "
        f"that takes variables away, or, for this machine alone: {advice.alone(request)}"
    )

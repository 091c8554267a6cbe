"""Whether --nproc gpu, auto or cpu comes to the same number on every node of several.

Each launcher counts what it has. With 5 devices here and 1 there one would start ranks 0 to 4 of
10, and the other rank 1 of 2. So the resource manager must have said that all nodes have as many.
"""

from spawnlaunch.errors import UsageError
from spawnlaunch.request import Request
from spawnlaunch.world import advised
from spawnlaunch.world.facts import Environ, Fact
from spawnlaunch.world.manager import Manager


def check(
    request: Request, manager: Manager | None, environ: Environ, nproc: Fact, nnodes: Fact
) -> None:
    """Raise UsageError where nothing shows that the other nodes count `nproc` workers too."""
    what = "CPUs" if request.nproc == "cpu" else "GPUs"
    told = manager.answer(f"{what.lower()}_per_node", environ) if manager else None
    if told is not None and told.value == nproc.value:
        return
    each = f"each of the {nnodes.value} nodes"
    shown = f"nothing says how many {what} {each} has"
    if told is not None:
        shown = f"{told.source} says {told.value} {what} of {each}"
    line = advised.with_nproc(request, manager, environ, nproc.value)
    raise UsageError(
        f"--nproc {request.nproc} is {nproc.value} on this node, and {shown}, so the ranks of all "
        f"nodes might not fit together; if each has {nproc.value}, type {line}; if not, start one "
        "task per rank, without --nproc"
    )

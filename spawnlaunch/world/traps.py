"""Traps that bite on real clusters, each named in one line with its remedy."""

from collections.abc import Iterator

from spawnlaunch.request import Request
from spawnlaunch.world import slurm
from spawnlaunch.world.facts import Environ
from spawnlaunch.world.manager import Manager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch.world import World

KILL_ON_BAD_EXIT = "SLURM_KILL_BAD_EXIT"


def of_the_job(
    request: Request, world: "World", manager: Manager | None, environ: Environ
) -> Iterator[str]:
    """The traps that are the same on every node of the job."""
    if manager is slurm.STEP:
        yield from _of_slurm(request, world, environ)


def _of_slurm(request: Request, world: "World", environ: Environ) -> Iterator[str]:
    if world.world_size > 1 and environ.get(KILL_ON_BAD_EXIT) != "1":
        yield (
            "srun may let the other ranks wait for ever when one dies; "
            "type srun --kill-on-bad-exit=1, or export SLURM_KILL_BAD_EXIT=1"
        )
    if world.mode == "node" and not request.rewrite_slurm_env:
        yield (
            f"the workers inherit {slurm.PROCID}, {slurm.LOCALID} and {slurm.JOB_TASKS} of their "
            "launcher's one task; for a script that reads those, type --rewrite-slurm-env"
        )

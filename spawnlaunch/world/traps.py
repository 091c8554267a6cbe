"""Traps that bite on real clusters, each named in one line with its remedy."""

from collections.abc import Iterator

from spawnlaunch.request import Request
from spawnlaunch.world import slurm
from spawnlaunch.world.facts import Environ
from spawnlaunch.world.manager import Manager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch.world import World

KILL_ON_BAD_EXIT = "SLURM_KILL_BAD_EXIT"  # srun(1); its flag leaves no trace in the environment
MASKS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
CONFIGURATION = "SLURM_CONF"


def of_the_job(
    request: Request, world: "World", manager: Manager | None, environ: Environ, hostname: str
) -> Iterator[str]:
    """The traps that are the same on every node of the job."""
    if manager is slurm.STEP:
        yield from _of_slurm(request, world, environ)
    if manager is slurm.SHELL and world.mode == "local" and slurm.is_outside(environ, hostname):
        yield (
            f"this shell is on {hostname}, which is no node of its job "
            f"({slurm.JOB_NODELIST}={environ[slurm.JOB_NODELIST]}); to run there, type srun "
            "--ntasks-per-node=1 before this command"
        )
    if world.mode == "task" and world.local_world_size > 1 and not request.virtual_local_rank:
        yield from _of_masks(environ)


def _of_masks(environ: Environ) -> Iterator[str]:
    masks = [name for name in MASKS if environ.get(name) and "," not in environ[name]]
    if masks:
        yield (
            f"each task sees one device ({masks[0]}={environ[masks[0]]} here), so cuda:LOCAL_RANK "
            "fails where LOCAL_RANK is not 0; --virtual-local-rank makes LOCAL_RANK 0 in every task"
        )


def _of_slurm(request: Request, world: "World", environ: Environ) -> Iterator[str]:
    if world.world_size > 1 and not _kills_on_bad_exit(environ):
        yield (
            f"nothing here says that srun ends the step when one rank dies; without it the others "
            f"wait for ever: type srun --kill-on-bad-exit=1, or export {KILL_ON_BAD_EXIT}=1, "
            "which is seen here too"
        )
    if world.mode == "node" and not request.rewrite_slurm_env:
        yield (
            f"the workers inherit {slurm.PROCID}, {slurm.LOCALID} and {slurm.JOB_TASKS} of their "
            "launcher's one task; for a script that reads those, type --rewrite-slurm-env"
        )


def _kills_on_bad_exit(environ: Environ) -> bool:
    """Whether the environment or the site's slurm.conf (KillOnBadExit) says so."""
    if KILL_ON_BAD_EXIT in environ:
        return environ[KILL_ON_BAD_EXIT] not in ("", "0")
    try:
        with open(environ.get(CONFIGURATION) or "/etc/slurm/slurm.conf") as file:
            lines = [line.replace(" ", "").lower() for line in file]
    except (OSError, UnicodeDecodeError):
        return False
    return any(line.startswith("killonbadexit=1") for line in lines)

"""--role where each task is a launcher of its own: nobody tells it the others' roles.

All tasks of a step have one command line, and so one role, unless the step has several programs.
That of `srun --multi-prog` cannot be seen; those of `mpirun a : b` and `srun a : b` can.
"""

from __future__ import annotations

from spawnlaunch import errors
from spawnlaunch.world.managers import slurm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch.world import identity

PROGRAMS = "OMPI_NUM_APP_CTX"  # how many; pmix_server_register_fns.c of Open MPI


def check(role: str, environ: identity.Environ) -> None:
    """Raises UsageError where another task may have another role."""
    if environ.get(PROGRAMS, "1") != "1":
        why = f"{PROGRAMS}={environ[PROGRAMS]}"
    elif slurm.has_several_components(environ):
        why = slurm.HET_SIZE
    else:
        return
    raise errors.UsageError(
        f"--role {role}: this step has several programs ({why}), and no task can know how many of "
        "the others have this role; leave --role out, or start one launcher per node with --nproc N"
    )

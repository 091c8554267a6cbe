"""Which resource manager started this process: the order of detection, stated once.

Innermost first, because the innermost is the one that started us:

1. MPI launchers and Flux run inside a Slurm, PBS or LSF job, and their remote daemons are started
   by it (Open MPI's by srun), so that a rank of theirs has the outer manager's variables as well.
2. Slurm's steps. Before PALS: Slurm's cray_shasta plugin sets PALS_* in its own tasks, while no
   PALS runs inside a Slurm step.
3. PALS, then those that start one launcher per pod. A Kubernetes index says least, so it is last.
4. A platform's RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT: after all managers, because a user or
   a container's hook may have exported the four inside one of them.
5. Jobs that give nothing but hosts: they surround every one of the above.
"""

from spawnlaunch.errors import UsageError
from spawnlaunch.world import (
    flux,
    gridengine,
    hydra,
    jsrun,
    kubeflow,
    kubernetes,
    openmpi,
    pals,
    pbs,
    platform,
    slurm,
)
from spawnlaunch.world.facts import Environ
from spawnlaunch.world.manager import HOSTS, Manager

ORDER = (
    openmpi.MANAGER,
    hydra.MANAGER,
    flux.MANAGER,
    jsrun.MANAGER,
    slurm.STEP,
    pals.MANAGER,
    kubeflow.MANAGER,
    platform.MANAGER,
    kubernetes.MANAGER,
    slurm.SHELL,
    pbs.MANAGER,
    gridengine.MANAGER,
)

IDENTITY = ("rank", "world_size", "local_rank")


def managers(environ: Environ) -> list[Manager]:
    """All managers that are present, the innermost first."""
    return [manager for manager in ORDER if manager.is_present(environ)]


def gives_ranks(manager: Manager | None) -> bool:
    """Whether RANK and its like, where set, are the manager's own and left by nobody."""
    return manager is platform.MANAGER


def disagreeing(found: list[Manager], environ: Environ) -> list[Manager]:
    """The outer managers that answer who we are otherwise than the innermost one.

    A platform's variables are left out: those are compared one by one, with all that is inherited.
    And so are those that give hosts only: they have started nobody.
    """
    return [
        outer
        for outer in found[1:]
        if outer is not platform.MANAGER
        and outer.kind != HOSTS
        and any(_differ(found[0], outer, question, environ) for question in IDENTITY)
    ]


def _differ(inner: Manager, outer: Manager, question: str, environ: Environ) -> bool:
    try:
        ours, theirs = inner.answer(question, environ), outer.answer(question, environ)
    except UsageError:
        return True  # it cannot be read, and nobody needs it
    return ours is not None and theirs is not None and ours.value != theirs.value

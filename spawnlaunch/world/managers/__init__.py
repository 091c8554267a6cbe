"""Which resource manager started this process: the order of detection, stated once.

Innermost first, because the innermost is the one that started us:

1. MPI launchers and Flux run inside a Slurm, PBS or LSF job, and their remote daemons are started
   by it (Open MPI's by srun), so that a rank of theirs has the outer manager's variables as well.
2. Slurm's steps. Before PALS: Slurm's cray_shasta plugin sets PALS_* in its own tasks, while no
   PALS runs inside a Slurm step.
3. PALS, then Kubeflow, which starts one launcher per pod.
4. A platform's RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT: after these, because a user or a
   container's hook may have exported the four inside one of them. Then a Kubernetes index, which
   says least.
5. Jobs that give nothing but hosts: they surround every one of the above.
"""

from __future__ import annotations

from spawnlaunch import errors
from spawnlaunch.world import identity

# A variable that the manager needs, its module and its name there. A module is imported where the
# variable of one of its managers is set, and in no other launch.
ORDER = (
    ("OMPI_COMM_WORLD_RANK", "mpi", "OPENMPI"),
    ("PMI_RANK", "mpi", "HYDRA"),
    ("FLUX_TASK_RANK", "tables", "FLUX"),
    ("JSM_NAMESPACE_RANK", "tables", "JSRUN"),
    ("SLURM_STEP_ID", "slurm", "STEP"),
    ("PALS_RANKID", "tables", "PALS"),
    ("PET_NNODES", "tables", "KUBEFLOW"),
    ("RANK", "tables", "PLATFORM"),
    ("JOB_COMPLETION_INDEX", "tables", "KUBERNETES"),
    ("SLURM_JOB_ID", "slurm", "SHELL"),
    ("PBS_JOBID", "tables", "PBS"),
    ("JOB_ID", "tables", "GRIDENGINE"),
)

# By the name of the process that starts tasks on a node: its manager, a pattern of the names of the
# variables that it gives them, and which of these is the number of tasks. Names of commands have at
# most 15 characters (proc(5), comm).
OPEN_MPI = ("Open MPI", "OMPI|PMIX", "OMPI_COMM_WORLD_SIZE")
STARTERS = {
    "slurmstepd": ("Slurm", "SLURM", "SLURM_STEP_NUM_TASKS"),
    **dict.fromkeys(("mpirun", "mpirun.openmpi", "mpiexec", "mpiexec.openmpi"), OPEN_MPI),
    **dict.fromkeys(("orterun", "prterun", "orted", "prted"), OPEN_MPI),
    "hydra_pmi_proxy": ("Hydra", "PMI|MPI", "PMI_SIZE"),
    "flux-shell": ("Flux", "FLUX", "FLUX_JOB_SIZE"),
    "palsd": ("HPE PALS", "PALS|PMI", "PMI_SIZE"),
}

# It starts a script or a shell on the first node, and gives it no variables of a job (its runat.c).
BROKER = "flux-broker"


def around(environ: identity.Environ) -> list[identity.Manager]:
    """All in whose job this may be, the innermost first; some of their variables may be missing."""
    return [load(module, name) for variable, module, name in ORDER if environ.get(variable)]


def detect(environ: identity.Environ) -> list[identity.Manager]:
    """All managers that are present, the innermost first."""
    return [manager for manager in around(environ) if manager.is_present(environ)]


def load(module: str, name: str) -> identity.Manager:
    """The manager of this name; -X importtime does not show what importlib imports."""
    manager: identity.Manager = getattr(__import__(f"{__name__}.{module}", fromlist=(name,)), name)
    return manager


def disagreeing(found: list[identity.Manager], environ: identity.Environ) -> list[identity.Manager]:
    """The outer managers that answer who we are otherwise than the innermost one.

    A platform's variables are left out: those are compared one by one, with all that is inherited.
    And so are those that give hosts only: they have started nobody.
    """
    outer = [each for each in found[1:] if each.kind != identity.HOSTS and not each.gives_ranks]
    return [each for each in outer if _differ(found[0], each, environ)]


def _differ(inner: identity.Manager, outer: identity.Manager, environ: identity.Environ) -> bool:
    for question in ("rank", "world_size", "local_rank"):
        try:
            ours, theirs = inner.answer(question, environ), outer.answer(question, environ)
        except errors.UsageError:
            return True  # it cannot be read, and nobody needs it
        if ours is not None and theirs is not None and ours.value != theirs.value:
            return True
    return False

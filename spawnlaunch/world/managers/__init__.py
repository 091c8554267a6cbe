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

from spawnlaunch.world import identity

# A variable that the manager needs, its module and its name there. A module is imported where the
# variable of one of its managers is set, and in no other launch.
ORDER = (
    ("OMPI_COMM_WORLD_RANK", "mpi", "OPENMPI"),
    ("PMI_RANK", "mpi", "HYDRA"),
    ("FLUX_TASK_RANK", "flux", "FLUX"),
    ("SLURM_STEP_ID", "slurm", "STEP"),
    ("PALS_RANKID", "pals", "PALS"),
    ("PET_NNODES", "kubeflow", "KUBEFLOW"),
    ("RANK", "platform", "PLATFORM"),
    ("JOB_COMPLETION_INDEX", "indexed", "KUBERNETES"),
    ("SLURM_JOB_ID", "slurm", "SHELL"),
    ("PBS_JOBID", "pbs", "PBS"),
    ("JOB_ID", "gridengine", "GRIDENGINE"),
    ("LSB_JOBID", "lsf", "LSF"),
    ("OAR_JOB_ID", "oar", "OAR"),
)

# By the name of the process that starts tasks on a node: its manager, and which of the variables
# that it gives them is the number of tasks. Names of commands have at most 15 characters (proc(5)).
OPEN_MPI = ("Open MPI", "OMPI_COMM_WORLD_SIZE")
STARTERS = {
    "slurmstepd": ("Slurm", "SLURM_STEP_NUM_TASKS"),
    **dict.fromkeys(("mpirun", "mpirun.openmpi", "mpiexec", "mpiexec.openmpi"), OPEN_MPI),
    **dict.fromkeys(("orterun", "prterun", "orted", "prted"), OPEN_MPI),
    "hydra_pmi_proxy": ("Hydra", "PMI_SIZE"),
    "flux-shell": ("Flux", "FLUX_JOB_SIZE"),
    "palsd": ("HPE PALS", "PMI_SIZE"),
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

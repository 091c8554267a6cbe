"""Find the resource manager that started this process; ORDER states the order of detection.

The innermost comes first, because it started this process:

1. MPI launchers and Flux run inside a Slurm, PBS or LSF job, which starts their remote daemons
   (Open MPI's by srun), so that their ranks have the outer manager's variables as well.
2. Slurm's steps. Before PALS: Slurm's cray_shasta plugin sets PALS_* in its own tasks, while no
   PALS runs inside a Slurm step.
3. PALS, then Kubeflow, which starts one launcher per pod.
4. A platform's RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT: after these, because a user or a
   container's hook may have exported the four inside one of them. Then a Kubernetes index, which
   gives the least: the node rank only.
5. Jobs that give nothing but hosts: each of the above may run inside one.
"""

from __future__ import annotations

from spawnlaunch.world import identity

# A variable that the manager needs, its module and its name there. A launch imports a module only
# where the variable of one of its managers is set.
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

# By the name of the process that starts tasks on a node: its manager, and the variable in which it
# gives them the number of tasks. Names of commands have at most 15 characters (proc(5)).
OPEN_MPI = ("Open MPI", "OMPI_COMM_WORLD_SIZE")
STARTERS = {
    "slurmstepd": ("Slurm", "SLURM_STEP_NUM_TASKS"),
    **dict.fromkeys(("mpirun", "mpirun.openmpi", "mpiexec", "mpiexec.openmpi"), OPEN_MPI),
    **dict.fromkeys(("orterun", "prterun", "orted", "prted"), OPEN_MPI),
    "hydra_pmi_proxy": ("Hydra", "PMI_SIZE"),
    "flux-shell": ("Flux", "FLUX_JOB_SIZE"),
    "palsd": ("HPE PALS", "PMI_SIZE"),
}

# Flux's broker starts a script or a shell on the first node, without a job's variables (runat.c).
BROKER = "flux-broker"


def around(environ: identity.Environ) -> list[identity.Manager]:
    """The managers with their variable of ORDER set, innermost first; others may be missing."""
    return [load(module, name) for variable, module, name in ORDER if environ.get(variable)]


def detect(environ: identity.Environ) -> list[identity.Manager]:
    """The managers with all needed variables set, the innermost first."""
    return [manager for manager in around(environ) if manager.is_present(environ)]


def load(module: str, name: str) -> identity.Manager:
    """Import a manager. `__import__`: -X importtime does not show imports of importlib."""
    manager: identity.Manager = getattr(__import__(f"{__name__}.{module}", fromlist=(name,)), name)
    return manager

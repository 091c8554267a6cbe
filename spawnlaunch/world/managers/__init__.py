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

# A variable that the manager needs, its module and its class there. A launch imports a module only
# where the variable of one of its managers is set.
ORDER = (
    ("OMPI_COMM_WORLD_RANK", "tasks", "OpenMpi"),
    ("PMI_RANK", "tasks", "Hydra"),
    ("FLUX_TASK_RANK", "tasks", "Flux"),
    ("SLURM_STEP_ID", "slurm", "Step"),
    ("PALS_RANKID", "tasks", "Pals"),
    ("PET_NNODES", "pods", "Kubeflow"),
    ("RANK", "pods", "Platform"),
    ("JOB_COMPLETION_INDEX", "pods", "Kubernetes"),
    ("SLURM_JOB_ID", "slurm", "Shell"),
    ("PBS_JOBID", "hosts", "Pbs"),
    ("JOB_ID", "hosts", "GridEngine"),
    ("LSB_JOBID", "hosts", "Lsf"),
    ("OAR_JOB_ID", "hosts", "Oar"),
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


def mentioned(environ: identity.Environ) -> list[identity.Manager]:
    """The managers with their variable of ORDER set, innermost first; others may be missing."""
    return [
        load(module, name)(environ) for variable, module, name in ORDER if environ.get(variable)
    ]


def detect(environ: identity.Environ) -> list[identity.Manager]:
    """The managers with all needed variables set, the innermost first."""
    return [manager for manager in mentioned(environ) if manager.is_present()]


def load(module: str, name: str) -> type[identity.Manager]:
    """Import a manager's class; importlib's imports would not be in -X importtime."""
    manager: type[identity.Manager] = getattr(
        __import__(f"{__name__}.{module}", fromlist=(name,)), name
    )
    return manager

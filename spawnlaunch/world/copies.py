"""A manager's process above us, and none of its variables here: each of its tasks would be alone.

`env -i` takes them away, and so does a container that begins with a clean environment. Without them
four tasks are four jobs of one rank, which all end well and have computed the same.
"""

from spawnlaunch.errors import UsageError
from spawnlaunch.request import Request
from spawnlaunch.world.ancestors import above, environ_below
from spawnlaunch.world.facts import Environ
from spawnlaunch.world.slurm import DAEMON, JOB_NODES, JOB_TASKS, NO_STEPS, started_by

# What starts the tasks on a node: whose it is, the prefixes of what it gives them, and which of
# that is their number. Names of commands have at most 15 characters (proc(5), comm).
OPEN_MPI = ("Open MPI", "OMPI|PMIX", "OMPI_COMM_WORLD_SIZE")
STARTERS = {
    DAEMON: ("Slurm", "SLURM", "SLURM_STEP_NUM_TASKS"),
    **dict.fromkeys(
        ("mpirun", "mpiexec", "orterun", "prterun", "mpirun.openmpi", "mpiexec.openmpi"), OPEN_MPI
    ),
    **dict.fromkeys(("orted", "prted"), OPEN_MPI),
    "hydra_pmi_proxy": ("Hydra", "PMI|MPI", "PMI_SIZE"),
    "flux-shell": ("Flux", "FLUX", "FLUX_JOB_SIZE"),
    "palsd": ("HPE PALS", "PALS|PMI", "PMI_SIZE"),
}


def _refuse_the_first(request: Request, given: Environ) -> None:
    """Raise UsageError in a batch script or a shell, of which there is one, for several tasks."""
    tasks, nodes = (given.get(name, "1") for name in (JOB_TASKS, JOB_NODES))
    if (tasks, nodes) == ("1", "1") or (request.nproc is not None and nodes == "1"):
        return
    from spawnlaunch.world import advised

    raise UsageError(
        f"this Slurm job has {tasks} tasks ({JOB_TASKS}) on {nodes} nodes ({JOB_NODES}), and the "
        "launcher has lost Slurm's variables, as behind env -i, so it would use this node alone; "
        f"type srun {advised.as_typed(request)}, with nothing between that takes variables away, "
        f"or, for this machine alone: {advised.alone(request)}"
    )


def refuse(request: Request) -> None:
    """Raise UsageError where a task of several would not know of the others."""
    found = next(((pid, name) for pid, name in above() if name in STARTERS), None)
    if found is None:
        return
    pid, starter = found
    manager, prefixes, size = STARTERS[starter]
    given = environ_below((starter,)) or {}
    if starter == DAEMON and started_by().partition(".")[2] in NO_STEPS:
        _refuse_the_first(request, given)
        return
    if given.get(size) == "1":
        return
    from shlex import quote

    from spawnlaunch.world import advised

    variables = f'$(env | grep -E "^({prefixes})" | grep -v " ")'
    kept = quote(f'exec env -i PATH="$PATH" {variables} {advised.as_typed(request)}')
    raise UsageError(
        f"{starter} (pid {pid}) is above this process, and none of {manager}'s variables is here, "
        "as behind env -i or in a container with --cleanenv, so each task would be a job of its "
        f"own; to hand them on, have {manager} start sh -c {kept}; if each task is to be a job of "
        f"its own, type {advised.alone(request)}"
    )

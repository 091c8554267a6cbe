"""The line of srun by which a command is started in a job, as the job or as this step has it.

srun takes what its job was asked for as its defaults, and ignores an --ntasks-per-node that does
not fit the job's --ntasks: so a line for one launcher per node says nodes, tasks and tasks per
node. Only errors need this, so only they import it.
"""

from __future__ import annotations

from spawnlaunch.base import reading
from spawnlaunch.world import identity
from spawnlaunch.world.managers import slurm

# In a shell, the number of this job alone. The last task of an array has the whole array's as
# SLURM_JOB_ID (sbatch(1), "Job array support"). Each other task has one of its own, and so has what
# a task has submitted, which inherits the variables of the array.
OWN_JOB = (
    '"$SLURM_JOB_ID$([ "$SLURM_JOB_ID" = "${SLURM_ARRAY_JOB_ID:-}" ] && '
    'echo "_$SLURM_ARRAY_TASK_ID")"'
)


def requeue(most: int) -> str:
    """What a batch script says behind srun to be started anew, up to `most` times.

    Not after status 2: what was typed wrong stays wrong. SLURM_RESTART_COUNT is not set in the
    first attempt (sbatch(1)).
    """
    return (
        "status=$?; [ $status -ne 0 ] && [ $status -ne 2 ] && "
        f'[ "${{SLURM_RESTART_COUNT:-0}}" -lt {most} ] && scontrol requeue {OWN_JOB}; '
        "exit $status"
    )


# Where no launcher is above the ranks: when one fails, srun ends the others, which wait for it.
ENDS_ALL = "--kill-on-bad-exit=1"


def as_the_job(environ: identity.Environ, command: str) -> str:
    """The line for as many ranks as the job was asked for tasks."""
    return " ".join([*_srun(environ), ENDS_ALL, command])


def per_rank(environ: identity.Environ, command: str) -> str:
    """The line for as many ranks as this step has tasks."""
    nodes, tasks = slurm.shell_nodes(environ), slurm.shell_tasks(environ)
    size = [f"--nodes={nodes.value} --ntasks={(tasks or nodes).value}"] if nodes else []
    return " ".join([*_srun(environ), ENDS_ALL, *size, command])


def per_node(environ: identity.Environ, command: str) -> str:
    """The line for one launcher on each node, with all CPUs and devices that it has here."""
    nodes, words = slurm.shell_nodes(environ), ["--ntasks-per-node=1"]
    if nodes:
        words = [f"--nodes={nodes.value} --ntasks={nodes.value}", *words, *_all_of_a_node(environ)]
    return " ".join([*_srun(environ), *words, command])


def _srun(environ: identity.Environ) -> list[str]:
    """In the shell of a step, which holds all that the job has, another step has to share it."""
    return ["srun", "--overlap"] if slurm.PTY_PORT in environ else ["srun"]


def _all_of_a_node(environ: identity.Environ) -> list[str]:
    words = []
    cpus, gpus = environ.get("SLURM_CPUS_ON_NODE", ""), environ.get("SLURM_GPUS_ON_NODE", "")
    # With one of these a task may not ask for all the CPUs that Slurm counts.
    is_hinted = environ.get("SLURM_HINT") or environ.get("SLURM_THREADS_PER_CORE")
    is_everywhere = "," not in environ.get(slurm.JOB_CPUS_PER_NODE, ",")
    if is_everywhere and not is_hinted and reading.is_number(cpus):
        words.append(f"--cpus-per-task={cpus}")
    # Of --gpus, in all, one node may have more than another.
    if reading.is_number(gpus) and int(gpus) and not environ.get("SLURM_GPUS"):
        words.append(f"--gpus-per-node={gpus}")
    return words

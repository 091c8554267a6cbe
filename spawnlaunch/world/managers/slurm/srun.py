"""Write the srun command line that starts a command in a job, with the job's or the step's size.

srun's defaults are the job's own options, and it ignores an --ntasks-per-node that does not fit
the job's --ntasks: so a line for one launcher per node has nodes, tasks and tasks per node. Only
errors need this module, so only they import it.
"""

from __future__ import annotations

from spawnlaunch.base import reading
from spawnlaunch.world import identity
from spawnlaunch.world.managers import slurm

# The number of this job alone, as a shell expands it. In the last task of an array SLURM_JOB_ID is
# the whole array's (sbatch(1), "Job array support"). Each other task has a number of its own, and
# so has a job that a task has submitted, which inherits the variables of the array.
OWN_JOB = (
    '"$SLURM_JOB_ID$([ "$SLURM_JOB_ID" = "${SLURM_ARRAY_JOB_ID:-}" ] && '
    'echo "_$SLURM_ARRAY_TASK_ID")"'
)


def requeue(most: int) -> str:
    """Return the shell commands after srun that requeue a failed batch script up to `most` times.

    Not after status 2: a wrong command line stays wrong. SLURM_RESTART_COUNT is not set in the
    first attempt (sbatch(1)).
    """
    return (
        "status=$?; [ $status -ne 0 ] && [ $status -ne 2 ] && "
        f'[ "${{SLURM_RESTART_COUNT:-0}}" -lt {most} ] && scontrol requeue {OWN_JOB}; '
        "exit $status"
    )


# For ranks without a launcher: when a rank fails, srun ends the others, which wait for it.
ENDS_ALL = "--kill-on-bad-exit=1"


def as_the_job(environ: identity.Environ, command: str) -> str:
    """The srun line for as many ranks as the job was asked for tasks."""
    return " ".join([*_srun(environ), ENDS_ALL, command])


def per_rank(environ: identity.Environ, command: str) -> str:
    """The srun line for as many ranks as this step has tasks."""
    nodes, tasks = slurm.shell_nodes(environ), slurm.shell_tasks(environ)
    size = [f"--nodes={nodes.value} --ntasks={(tasks or nodes).value}"] if nodes else []
    return " ".join([*_srun(environ), ENDS_ALL, *size, command])


def per_node(environ: identity.Environ, command: str) -> str:
    """The srun line for one launcher on each node, with all CPUs and devices of the job there."""
    nodes, words = slurm.shell_nodes(environ), ["--ntasks-per-node=1"]
    if nodes:
        words = [f"--nodes={nodes.value} --ntasks={nodes.value}", *words, *_all_of_a_node(environ)]
    return " ".join([*_srun(environ), *words, command])


def _srun(environ: identity.Environ) -> list[str]:
    """Return srun with --overlap in a step's shell: that step holds all resources of the job."""
    return ["srun", "--overlap"] if slurm.PTY_PORT in environ else ["srun"]


def _all_of_a_node(environ: identity.Environ) -> list[str]:
    words = []
    cpus, gpus = environ.get("SLURM_CPUS_ON_NODE", ""), environ.get("SLURM_GPUS_ON_NODE", "")
    # With one of these set, a task may not ask for all CPUs that Slurm counts.
    is_hinted = environ.get("SLURM_HINT") or environ.get("SLURM_THREADS_PER_CORE")
    is_everywhere = "," not in environ.get(slurm.JOB_CPUS_PER_NODE, ",")
    if is_everywhere and not is_hinted and reading.is_number(cpus):
        words.append(f"--cpus-per-task={cpus}")
    # --gpus is the number in all: one node may have more than another.
    if reading.is_number(gpus) and int(gpus) and not environ.get("SLURM_GPUS"):
        words.append(f"--gpus-per-node={gpus}")
    return words

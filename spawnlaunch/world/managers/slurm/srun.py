"""Write the srun command line that starts a command in a job, with the job's or the step's size.

srun's defaults are the job's own options, and it ignores an --ntasks-per-node that does not fit
the job's --ntasks: so a line for one launcher per node has nodes, tasks and tasks per node. Only
errors need this module, so only they import it.
"""

from __future__ import annotations

from spawnlaunch.base import reading
from spawnlaunch.world import identity
from spawnlaunch.world.managers import slurm


def start_line(manager: slurm.Slurm, command: str, n: int) -> str:
    """Return the line for a launcher on each node (n = 1), or for a task per rank."""
    environ, (nodes, tasks) = manager.environ, manager.size()
    # In a step's shell: that step holds all resources of the job.
    words = ["srun", "--overlap"] if slurm.PTY_PORT in environ else ["srun"]
    if n == 1 and nodes:
        words += [f"--nodes={nodes.value} --ntasks={nodes.value} --ntasks-per-node=1"]
        words += _all_of_a_node(environ)
    elif n == 1:
        words += ["--ntasks-per-node=1"]
    else:
        words += ["--kill-on-bad-exit=1"]  # no launcher ends the others when a rank fails
        if nodes and not manager.has_steps:
            words += [f"--nodes={nodes.value} --ntasks={(tasks or nodes).value}"]
    return " ".join([*words, command])


def _all_of_a_node(environ: identity.Environ) -> list[str]:
    """The options for all CPUs and devices that the job has on a node."""
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

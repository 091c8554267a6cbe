"""Traps that bite on real clusters, each named in one line with its remedy.

They are the same on every node of the job, so rank 0 looks for them, and no other.
"""

from __future__ import annotations

from spawnlaunch import flags
from spawnlaunch.node import visible
from spawnlaunch.world import identity, managers, ranks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def find_warnings(
    it: identity.Evidence, world: identity.World, found: list[identity.Manager]
) -> Iterator[str]:
    """What is to be said of the job, given all managers that are there: one at least."""
    manager, environ = found[0], it.environ
    for outer in managers.disagreeing(found, environ) if len(found) > 1 else ():
        yield (
            f"{manager.name} and {outer.name} disagree about the ranks; those of "
            f"{manager.name}, the inner one, are taken"
        )
    if environ.get("SLURM_JOB_ID"):
        yield from _of_slurm(it, world, manager)
    if manager.kind == identity.TASKS and world.mode == identity.LOCAL:
        yield from _of_jobs_side_by_side(it, manager)
    if world.is_task and world.local_world_size > 1 and not it.request.virtual_local_rank:
        yield from _of_one_device(environ)


def _of_one_device(environ: identity.Environ) -> Iterator[str]:
    """Each of several tasks sees a device of its own, by the same index."""
    for name in visible.DEVICE_LISTS:
        if visible.is_device(environ.get(name, "")) and "," not in environ[name]:
            yield (
                f"each task sees one device ({name}={environ[name]} here), so "
                "cuda:LOCAL_RANK fails where LOCAL_RANK is not 0; --virtual-local-rank makes "
                "LOCAL_RANK 0 in every task"
            )
            return


def _of_slurm(
    it: identity.Evidence, world: identity.World, manager: identity.Manager
) -> Iterator[str]:
    from spawnlaunch.world.managers import slurm

    if manager.gives_ranks and slurm.SHELL.is_present(it.environ):
        yield from _of_exports(it, world, slurm.shell_tasks(it.environ))
    if manager not in (slurm.STEP, slurm.SHELL):
        return
    is_shell = manager is slurm.SHELL
    if world.mode != identity.LOCAL:
        yield from _of_step(it, world, slurm.KILL_ON_BAD_EXIT)
    elif is_shell and slurm.is_outside(it.environ, it.hostname):
        from spawnlaunch.world import advice

        n = world.local_world_size
        line = advice.launcher_per_node(it.request, manager, it.environ, n)
        yield (
            f"this shell is on {it.hostname}, which is no node of its job "
            f"({slurm.JOB_NODELIST}={it.environ[slurm.JOB_NODELIST]}); to run there, type {line}"
        )
    if world.mode != identity.TASK:
        yield from _of_kill_wait(it)


def _of_kill_wait(it: identity.Evidence) -> Iterator[str]:
    """A grace that Slurm does not give; of the defaults of both, which fit almost, not a word."""
    from spawnlaunch.world.managers.slurm import site

    grace_s, most = it.request.grace_s, it.ask("longest_grace_s")
    wait_s = site.kill_wait_s(it.environ)
    defaults = grace_s == flags.GRACE_S and wait_s == site.KILL_WAIT_S
    if most is not None and grace_s > most.value and not defaults:
        yield (
            f"workers that are told to end have {most.value:g} s, not {grace_s:g} (--grace): "
            f"Slurm kills all after {wait_s} s (KillWait in {site.path(it.environ)}), and "
            "the report is to come before that"
        )


def _of_jobs_side_by_side(it: identity.Evidence, manager: identity.Manager) -> Iterator[str]:
    """--standalone in each of several tasks; the first of them speaks of it."""
    several, rank, tasks = ranks.several_tasks(it), it.ask("rank"), it.ask("world_size")
    if rank is None or rank.value or tasks is None or tasks.value == 1:
        return
    if it.request.result:
        yield (
            f"--standalone makes a job of each of the {tasks.value} tasks ({tasks.source}), and "
            f"each writes --result {it.request.result}: name one that each has of its own, such as "
            "/tmp on each node, or leave it out"
        )
    if several is None:
        return
    from spawnlaunch.world import advice

    line = advice.launcher_per_node(it.request, manager, it.environ, several.value)
    yield (
        f"--standalone makes a job of each of the {several.value} tasks on a node "
        f"({several.source}), with ports of its own; CPUs, devices and files that flags name are "
        f"the same for all unless {manager.name} gave each its own; for one job of all, type {line}"
    )


def _of_exports(
    it: identity.Evidence, world: identity.World, tasks: identity.Fact | None
) -> Iterator[str]:
    """A batch script's RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS, and no srun behind them."""
    if tasks is not None and tasks.value == world.world_size > 1 and world.rank == 0:
        from spawnlaunch.world import advice
        from spawnlaunch.world.managers.slurm import srun

        line = srun.as_the_job(it.environ, advice.as_tasks(it.request))
        yield (
            f"this is a shell of a Slurm job with {tasks.value} tasks ({tasks.source}), not a step "
            f"of it, and rank 0 waits here for {tasks.value - 1} others that nobody has started: "
            f"srun is missing; type {line}"
        )


def _of_step(it: identity.Evidence, world: identity.World, variable: str) -> Iterator[str]:
    """`variable` has srun end the step when a task ends badly."""
    # Else the launchers end each other.
    is_alone = world.mode == identity.TASK or it.request.no_gang
    if world.world_size > 1 and is_alone and it.environ.get(variable) in (None, "", "0"):
        from spawnlaunch.world.managers.slurm import site  # most jobs export it

        if not site.kills_on_bad_exit(it.environ, variable):
            yield (
                "nothing on this node says that srun ends the step when one rank dies (flags of "
                "an srun on another machine cannot be seen); if it does not, the others wait "
                f"forever: type export {variable}=1 before srun"
            )
    if world.mode == identity.NODE and not it.request.rewrite_slurm_env:
        yield (
            "the workers inherit SLURM_PROCID, SLURM_LOCALID and SLURM_NTASKS of their "
            "launcher's one task; for a script that reads those, type --rewrite-slurm-env"
        )

"""Traps that bite on real clusters, each named in one line with its remedy."""

from __future__ import annotations

from spawnlaunch.request import GRACE_S, Request
from spawnlaunch.world import slurm
from spawnlaunch.world.facts import Environ
from spawnlaunch.world.manager import TASKS, Manager
from spawnlaunch.world.place import several_tasks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from spawnlaunch.world import World

KILL_ON_BAD_EXIT = "SLURM_KILL_BAD_EXIT"  # srun(1)
MASKS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def of_the_job(
    request: Request, world: World, manager: Manager | None, environ: Environ, hostname: str
) -> Iterator[str]:
    """The traps that are the same on every node of the job."""
    if manager is slurm.STEP or manager is slurm.SHELL:
        yield from _of_slurm(request, world, manager, environ, hostname)
    if manager is not None and manager.kind == TASKS and world.mode == "local":
        yield from _of_jobs_side_by_side(request, manager, environ)
    if manager is not None and manager.gives_ranks:
        yield from _of_exports(request, world, environ)
    if world.mode == "task" and world.local_world_size > 1 and not request.virtual_local_rank:
        yield from _of_masks(environ)


def _of_slurm(
    request: Request, world: World, manager: Manager, environ: Environ, hostname: str
) -> Iterator[str]:
    if world.mode == "local":
        yield from _of_outside(request, world, manager, environ, hostname)
    else:
        yield from _of_step(request, world, environ)
    if world.mode != "task":
        yield from _of_kill_wait(request, environ)


def _of_outside(
    request: Request, world: World, manager: Manager, environ: Environ, hostname: str
) -> Iterator[str]:
    if manager is not slurm.SHELL or not slurm.is_outside(environ, hostname):
        return
    from spawnlaunch.world import advised

    line = advised.launcher_per_node(request, manager, environ, world.local_world_size)
    yield (
        f"this shell is on {hostname}, which is no node of its job "
        f"({slurm.JOB_NODELIST}={environ[slurm.JOB_NODELIST]}); to run there, type {line}"
    )


def _of_kill_wait(request: Request, environ: Environ) -> Iterator[str]:
    """A grace that Slurm does not give; of the defaults of both, which fit almost, not a word."""
    from spawnlaunch.world import slurm_conf

    wait_s, most_s = slurm_conf.kill_wait_s(environ), slurm_conf.longest_grace_s(environ)
    defaults = request.grace_s == GRACE_S and wait_s == slurm_conf.KILL_WAIT_S
    if most_s is not None and request.grace_s > most_s and not defaults:
        yield (
            f"workers that are told to end have {most_s:g} s, not {request.grace_s:g} (--grace): "
            f"Slurm kills all after {wait_s} s (KillWait in {slurm_conf.path(environ)}), and the "
            "report is to come before that"
        )


def _of_jobs_side_by_side(request: Request, manager: Manager, environ: Environ) -> Iterator[str]:
    """--standalone in each of several tasks; the first of them speaks of it."""
    several, rank = several_tasks(manager, environ), manager.answer("rank", environ)
    tasks = manager.answer("world_size", environ)
    if rank is None or rank.value or tasks is None or tasks.value == 1:
        return
    if request.result:
        yield (
            f"--standalone makes a job of each of the {tasks.value} tasks ({tasks.source}), and "
            f"each writes --result {request.result}: name one that each has of its own, such as "
            "/tmp on each node, or leave it out"
        )
    if several is None:
        return
    from spawnlaunch.world import advised

    line = advised.launcher_per_node(request, manager, environ, several.value)
    yield (
        f"--standalone makes a job of each of the {several.value} tasks on a node "
        f"({several.source}), with ports of its own; CPUs, devices and files that flags name are "
        f"the same for all unless {manager.name} gave each its own; for one job of all, type {line}"
    )


def _of_exports(request: Request, world: World, environ: Environ) -> Iterator[str]:
    """A batch script's RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS, and no srun behind them."""
    tasks = slurm.shell_tasks(environ) if slurm.SHELL.is_present(environ) else None
    if tasks is not None and tasks.value == world.world_size > 1 and world.rank == 0:
        from spawnlaunch.world import advised

        yield (
            f"this is a shell of a Slurm job with {tasks.value} tasks ({tasks.source}), not a step "
            f"of it, and rank 0 waits here for {tasks.value - 1} others that nobody has started: "
            f"srun is missing; type {advised.tasks_of_the_job(request, environ)}"
        )


def _of_masks(environ: Environ) -> Iterator[str]:
    masks = [name for name in MASKS if environ.get(name) and "," not in environ[name]]
    if masks:
        yield (
            f"each task sees one device ({masks[0]}={environ[masks[0]]} here), so cuda:LOCAL_RANK "
            "fails where LOCAL_RANK is not 0; --virtual-local-rank makes LOCAL_RANK 0 in every task"
        )


def _of_step(request: Request, world: World, environ: Environ) -> Iterator[str]:
    is_mine = world.rank == 0 or request.explain  # to say: the others need not look
    if world.world_size > 1 and is_mine and not _kills_on_bad_exit(environ):
        yield (
            "nothing on this node says that srun ends the step when one rank dies (flags of an "
            "srun on another machine cannot be seen); without it the others wait for ever: type "
            f"export {KILL_ON_BAD_EXIT}=1 before srun, which is seen"
        )
    if world.mode == "node" and not request.rewrite_slurm_env:
        yield (
            f"the workers inherit {slurm.PROCID}, {slurm.LOCALID} and {slurm.JOB_TASKS} of their "
            "launcher's one task; for a script that reads those, type --rewrite-slurm-env"
        )


def _kills_on_bad_exit(environ: Environ) -> bool:
    """Whether the environment, srun's own command line or the site's slurm.conf says so."""
    if KILL_ON_BAD_EXIT in environ:
        return environ[KILL_ON_BAD_EXIT] not in ("", "0")
    from spawnlaunch.world import own_srun, slurm_conf  # most jobs export it

    return slurm_conf.kills_on_bad_exit(environ) or own_srun.kills_on_bad_exit(
        environ, KILL_ON_BAD_EXIT
    )

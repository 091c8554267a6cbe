"""Who am I among how many: rank, size, local rank, and where rank 0 listens.

`resolve` walks: which manager started us, which mode that makes, the place it gives us, what the
environment has inherited, and from all that the address and port of rank 0. Each value is a Fact,
which knows its source. Nothing is started and nobody asked here, so every launcher of a job comes
to the same result by itself; `settle` then looks at this machine.
"""

from __future__ import annotations

import os

from spawnlaunch.errors import UsageError
from spawnlaunch.records import NamedTuple
from spawnlaunch.request import Request
from spawnlaunch.world import detect, inherited, master, network, slurm, traps
from spawnlaunch.world.facts import Environ, Fact, Lost, is_named
from spawnlaunch.world.manager import TASKS, Manager
from spawnlaunch.world.place import (
    LOCAL,
    NODE,
    TASK,
    Capacity,
    Facts,
    is_overruled,
    local_place,
    mode_of,
    node_place,
    task_place,
)
from spawnlaunch.world.ports import HeldPort, hold, hold_free_port

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeAlias

Given: TypeAlias = "Callable[[], Environ | None]"


class World(NamedTuple):
    """The place of this launcher's workers in the job.

    `rank` and `local_rank` are those of its first worker; worker i has `rank + i`.
    """

    mode: str  # "task", "node" or "local"
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int | None  # None where the resource manager does not say
    nnodes: int | None
    master_addr: str
    master_port: int
    run_id: str


class Resolution(NamedTuple):
    """The world, and how it was found."""

    world: World
    sources: dict[str, Fact]  # by the names of World's fields
    warnings: tuple[str, ...]  # about the job: said once, by rank 0
    managers: tuple[Manager, ...]  # the innermost first
    of_this_node: tuple[str, ...] = ()  # warnings that each node says for itself
    exports: Mapping[str, str] = {}  # for the workers' environment, unless the user set them


def resolve(
    request: Request,
    environ: Environ,
    hostname: str,
    capacity: Capacity,
    given: Given = slurm.given,
) -> Resolution:
    """Derive the world. `capacity` is what this machine has for workers.

    `given` says what the resource manager gave to all ranks, where that can be seen.

    Raises UsageError on a contradiction, or where something is known to the user only.
    """
    found = detect.managers(environ)
    manager = found[0] if found else None
    mode = mode_of(request, manager, environ)
    facts = _place(mode.value, request, manager, environ, hostname, capacity)
    told_by = _told_by(mode.value, request, manager, environ)
    of_run = manager if mode.value == LOCAL else told_by
    host = master.host(mode.value, told_by, facts, environ, hostname)
    left = _inherited(mode.value, told_by, facts, host, environ, given)
    addr, port = left.kept.get("MASTER_ADDR"), left.kept.get("MASTER_PORT")
    facts = {
        "mode": mode,
        **facts,
        "master_addr": master.address(request, mode.value, told_by, host, addr, facts, environ),
        "master_port": master.port(request, mode.value, told_by, port, environ),
        "run_id": _run_id(request, mode.value, of_run, environ),
    }
    facts = inherited.with_lost(facts, left, environ)
    values: dict[str, Any] = {name: fact.value for name, fact in facts.items()}
    world = World(**values)
    warnings = [
        *inherited.warnings(facts, left, environ),
        *(f"{manager.name} and {outer.name} disagree about the ranks; those of "
          f"{manager.name}, the inner one, are taken"
          for outer in detect.disagreeing(found, environ) if manager),
        *traps.of_the_job(request, world, manager, environ, hostname),
    ]  # fmt: skip
    of_this_node = inherited.own_warnings(facts, left, environ)
    return Resolution(world, facts, tuple(warnings), tuple(found), of_this_node)


def _place(
    mode: str,
    request: Request,
    manager: Manager | None,
    environ: Environ,
    hostname: str,
    capacity: Capacity,
) -> Facts:
    if mode == LOCAL:
        return local_place(request, manager, environ, capacity)
    if mode == TASK:
        assert manager is not None
        return task_place(request, manager, environ)
    return node_place(request, manager, environ, hostname, capacity)


def _told_by(
    mode: str, request: Request, manager: Manager | None, environ: Environ
) -> Manager | None:
    """The manager whose word counts for where rank 0 listens."""
    if manager is None or mode == LOCAL:
        return None
    overruled = mode == NODE and is_overruled(request, manager, environ)
    return None if overruled else manager


def _run_id(request: Request, mode: str, manager: Manager | None, environ: Environ) -> Fact:
    """The same in all launchers of a run; so where nothing names it, it has no name of its own."""
    if request.rdzv_id is not None:
        return Fact(request.rdzv_id, "--rdzv-id")
    job = manager.answer("job", environ) if manager else None
    if mode == LOCAL:
        # A pid is given anew, and is 1 in every container: files of earlier runs may be there.
        name = f"local-{os.getpid()}-{os.urandom(4).hex()}"
        job = job or Fact(name, "pid of the launcher, and chance")
        return _of_one_task(job, manager, environ)
    return job or Fact("none", "torchrun's default: nothing here names the run")


def _of_one_task(job: Fact, manager: Manager | None, environ: Environ) -> Fact:
    """The job's name, and the task's rank where each of several tasks is a job of its own."""
    tasks = manager.answer("world_size", environ) if manager and manager.kind == TASKS else None
    rank = manager.answer("rank", environ) if manager and tasks and tasks.value > 1 else None
    if rank is None:
        return job
    return Fact(f"{job.value}-{rank.value}", f"{job.source}, and {rank.source} of this task")


def _inherited(
    mode: str,
    manager: Manager | None,
    facts: Facts,
    host: Fact | None,
    environ: Environ,
    given: Given,
) -> inherited.Inherited:
    """What is taken of the inherited variables, by the rule of those who must agree."""
    if manager is not None and manager.gives_ranks:
        return inherited.Inherited()
    if mode == LOCAL:
        return inherited.of_one_launcher(environ, facts)
    common = given() if manager is slurm.STEP and inherited.has_master(environ) else None
    certain = host.value if host is not None and manager is slurm.STEP else None
    return inherited.of_several(environ, environ if common is None else common, facts, certain)


def refuse_copies(request: Request, resolution: Resolution) -> None:
    """Raise UsageError where this is one of several tasks, and has lost all that says so.

    Nobody has started several of what reads a terminal.
    """
    alone = resolution.world.mode == LOCAL and not resolution.managers
    if alone and not request.standalone and not os.isatty(0):
        from spawnlaunch.world import copies

        copies.refuse(request)


def settle(
    resolution: Resolution, environ: Environ, hostname: str
) -> tuple[Resolution, HeldPort | None]:
    """Look at this machine: whether rank 0 can listen here, and others can reach it.

    Raises UsageError where the port is in use.
    """
    resolution = _own_address(resolution)
    resolution, held = _claim_port(resolution)
    advice = network.advise(resolution.world, environ, hostname)
    said = (*resolution.of_this_node, *advice.warnings)
    return resolution._replace(exports=advice.exports, of_this_node=said), held


def _own_address(resolution: Resolution) -> Resolution:
    """Rank 0 listens here; in local mode an inherited MASTER_ADDR of elsewhere was not meant."""
    world, fact = resolution.world, resolution.sources["master_addr"]
    is_mine = fact.source == "MASTER_ADDR" and world.rank == 0
    if not is_mine or network.is_this_machine(world.master_addr):
        return resolution
    if world.mode != LOCAL:
        said = (
            f"MASTER_ADDR={fact.value} is no address of this machine, where rank 0 listens; unless "
            "something between forwards to it, type --master-addr HOST"
        )
        return resolution._replace(warnings=(*resolution.warnings, said))
    lost = Lost(fact.value, fact.source, "is another machine's, and all workers are on this one")
    fact = Fact(master.LOOPBACK, "local mode", (lost,))
    return resolution._replace(
        world=world._replace(master_addr=master.LOOPBACK),
        sources={**resolution.sources, "master_addr": fact},
        warnings=(*resolution.warnings, f"replaced MASTER_ADDR={lost.value}, which {lost.why}"),
    )


def _claim_port(resolution: Resolution) -> tuple[Resolution, HeldPort | None]:
    """Choose and hold a free port, or hold the given one; the launcher of rank 0 only."""
    world = resolution.world
    if world.rank != 0:
        return resolution, None
    if world.master_port == master.FREE:
        return _with_free_port(resolution, "local mode")
    holding = hold(world.master_port)
    if holding is None:
        source = resolution.sources["master_port"].source
        raise UsageError(
            f"port {world.master_port} ({source}) is in use on this machine, so rank 0 cannot "
            "listen there; end what uses it, or type --master-port N"
        )
    return resolution, holding


def _with_free_port(resolution: Resolution, why: str) -> tuple[Resolution, HeldPort]:
    held = hold_free_port()
    fact = resolution.sources["master_port"]._replace(
        value=held.port, source=f"free port outside the ephemeral range ({why})"
    )
    return resolution._replace(
        world=resolution.world._replace(master_port=held.port),
        sources={**resolution.sources, "master_port": fact},
    ), held


def anew(resolution: Resolution, environ: Environ) -> tuple[Resolution, HeldPort | None]:
    """For workers of one machine that start once more: another port, unless somebody named this.

    What listened on the old one may not be quite gone. Hold the old port until this has returned,
    and the new one differs from it. Raises UsageError where no port is free.
    """
    if is_named(resolution.sources["master_port"], environ):
        return resolution, None
    return _with_free_port(resolution, "restart")

"""Who am I among how many: rank, size, local rank, and where rank 0 listens.

`resolve` walks: which manager started us, which mode that makes, the place it gives us, what the
environment has inherited, and from all that the address and port of rank 0. Each value is a Fact,
which knows its source. Nothing is started, asked or opened here, so every launcher of a job comes
to the same result by itself; `claim_port` then looks at this machine.
"""

import os
from typing import Any, NamedTuple

from spawnlaunch.errors import UsageError
from spawnlaunch.request import Request
from spawnlaunch.world import detect, inherited, master, traps
from spawnlaunch.world.facts import Environ, Fact, Lost
from spawnlaunch.world.manager import Manager
from spawnlaunch.world.place import (
    LOCAL,
    TASK,
    Count,
    Facts,
    local_place,
    mode_of,
    node_place,
    task_place,
)
from spawnlaunch.world.ports import HeldPort, hold, hold_free_port


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


def resolve(request: Request, environ: Environ, hostname: str, count: Count) -> Resolution:
    """Derive the world. `count` says how many workers a value of --nproc means on this machine.

    Raises UsageError on a contradiction, or where something is known to the user only.
    """
    found = detect.managers(environ)
    manager = found[0] if found else None
    mode = mode_of(request, manager, environ)
    facts = _place(mode.value, request, manager, environ, hostname, count)
    left = inherited.stale(environ, facts) if detect.inherits_ranks(found) else []
    kept = {} if left else {name: environ[name] for name in inherited.MASTER if environ.get(name)}
    facts = {
        "mode": mode,
        **facts,
        "master_addr": master.address(request, mode.value, manager, facts, kept, environ, hostname),
        "master_port": master.port(request, mode.value, manager, kept, environ),
        "run_id": _run_id(request, manager, environ),
    }
    if left:
        facts = _with_replaced(facts, environ)
    values: dict[str, Any] = {name: fact.value for name, fact in facts.items()}
    world = World(**values)
    warnings = [
        *(_replaced(left) if left else ()),
        *(f"{manager.name} and {outer.name} disagree about the ranks; those of "
          f"{manager.name}, the inner one, are taken"
          for outer in detect.disagreeing(found, environ) if manager),
        *traps.of_the_job(request, world, manager, environ),
    ]  # fmt: skip
    return Resolution(world, facts, tuple(warnings), tuple(found))


def _place(
    mode: str,
    request: Request,
    manager: Manager | None,
    environ: Environ,
    hostname: str,
    count: Count,
) -> Facts:
    if mode == LOCAL:
        return local_place(request, manager, environ, count)
    if mode == TASK:
        assert manager is not None
        return task_place(request, manager, environ)
    return node_place(request, manager, environ, hostname, count)


def _run_id(request: Request, manager: Manager | None, environ: Environ) -> Fact:
    if request.rdzv_id is not None:
        return Fact(request.rdzv_id, "--rdzv-id")
    job = manager.answer("job", environ) if manager else None
    return job or Fact(f"local-{os.getpid()}", "pid of the launcher")


def _with_replaced(facts: Facts, environ: Environ) -> Facts:
    """The facts, with the inherited variables that were replaced among their lost candidates."""
    why = "left by an outer launcher: rank variables beside it contradict"
    replaced = {**inherited.RANKS, "MASTER_ADDR": "master_addr", "MASTER_PORT": "master_port"}
    result = dict(facts)
    for name, question in replaced.items():
        if name in environ:
            fact = result[question]
            result[question] = fact._replace(lost=(*fact.lost, Lost(environ[name], name, why)))
    return result


def _replaced(left: list[str]) -> list[str]:
    return [f"replaced what an outer launcher or a profile left: {' '.join(left)}"]


def claim_port(resolution: Resolution) -> tuple[Resolution, HeldPort | None]:
    """Make sure that rank 0 can listen: choose and hold a free port, or look at the given one.

    Only the launcher of rank 0 looks. Raises UsageError where the port is in use.
    """
    world = resolution.world
    if world.rank != 0:
        return resolution, None
    if world.master_port == master.FREE:
        held = hold_free_port()
        world = world._replace(master_port=held.port)
        fact = Fact(held.port, "free port outside the ephemeral range (local mode)")
        sources = {**resolution.sources, "master_port": fact}
        return resolution._replace(world=world, sources=sources), held
    held_port = hold(world.master_port)
    if held_port is None:
        source = resolution.sources["master_port"].source
        raise UsageError(
            f"port {world.master_port} ({source}) is in use on this machine, so rank 0 cannot "
            "listen there; end what uses it, or type --master-port N"
        )
    return resolution, held_port

"""Who am I among how many: rank, size, local rank, and where rank 0 listens.

`resolve` walks: which manager started us, which mode that makes, the place it gives us, what the
environment has inherited, and from all that the address and port of rank 0. Each value is a Fact,
which knows its source. Nothing is started, asked or opened here, so every launcher of a job comes
to the same result by itself; `settle` then looks at this machine.
"""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from spawnlaunch.errors import UsageError
from spawnlaunch.request import Request
from spawnlaunch.world import detect, inherited, master, network, traps
from spawnlaunch.world.facts import Environ, Fact, Lost, is_named
from spawnlaunch.world.manager import Manager
from spawnlaunch.world.place import (
    LOCAL,
    NODE,
    TASK,
    Count,
    Facts,
    is_overruled,
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
    of_this_node: tuple[str, ...] = ()  # warnings that each node says for itself
    exports: Mapping[str, str] = {}  # for the workers' environment, unless the user set them


def resolve(request: Request, environ: Environ, hostname: str, count: Count) -> Resolution:
    """Derive the world. `count` says how many workers a value of --nproc means on this machine.

    Raises UsageError on a contradiction, or where something is known to the user only.
    """
    found = detect.managers(environ)
    manager = found[0] if found else None
    mode = mode_of(request, manager, environ)
    facts = _place(mode.value, request, manager, environ, hostname, count)
    told_by = _told_by(mode.value, request, manager, environ)
    own = detect.gives_ranks(told_by)
    left = [] if own else inherited.stale(environ, facts)
    kept = {} if own or left else inherited.master(environ)
    useless = _useless_address(mode.value, facts, kept)
    if useless:
        del kept["MASTER_ADDR"]
    facts = {
        "mode": mode,
        **facts,
        "master_addr": master.address(
            request, mode.value, told_by, facts, kept.get("MASTER_ADDR"), environ, hostname
        ),
        "master_port": master.port(request, mode.value, told_by, kept.get("MASTER_PORT"), environ),
        "run_id": _run_id(
            request, mode.value, manager if mode.value == LOCAL else told_by, environ
        ),
    }
    if left:
        facts = _with_replaced(facts, environ)
    values: dict[str, Any] = {name: fact.value for name, fact in facts.items()}
    world = World(**values)
    warnings = [
        *(_replaced(left) if left else ()),
        *useless,
        *(f"{manager.name} and {outer.name} disagree about the ranks; those of "
          f"{manager.name}, the inner one, are taken"
          for outer in detect.disagreeing(found, environ) if manager),
        *traps.of_the_job(request, world, manager, environ, hostname),
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
        return job or Fact(f"local-{os.getpid()}", "pid of the launcher")
    return job or Fact("none", "torchrun's default: nothing here names the run")


def _useless_address(mode: str, facts: Facts, kept: Mapping[str, Fact]) -> list[str]:
    """What is to be said of an inherited MASTER_ADDR by which every node would mean itself."""
    addr = kept.get("MASTER_ADDR")
    alone = mode == LOCAL or facts["world_size"].value == facts["local_world_size"].value
    if addr is None or alone or not master.is_loopback(addr.value):
        return []
    return [f"replaced MASTER_ADDR={addr.value}, by which every node would mean itself"]


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


def settle(
    resolution: Resolution, environ: Environ, hostname: str
) -> tuple[Resolution, HeldPort | None]:
    """Look at this machine: whether rank 0 can listen here, and others can reach it.

    Raises UsageError where the port is in use.
    """
    resolution = _own_address(resolution)
    resolution, held = _claim_port(resolution)
    advice = network.advise(resolution.world, environ, hostname)
    return resolution._replace(exports=advice.exports, of_this_node=advice.warnings), held


def _own_address(resolution: Resolution) -> Resolution:
    """In local mode an inherited MASTER_ADDR of another machine cannot have been meant."""
    world, fact = resolution.world, resolution.sources["master_addr"]
    inherited_one = world.mode == LOCAL and fact.source == "MASTER_ADDR"
    if not inherited_one or network.is_this_machine(world.master_addr):
        return resolution
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

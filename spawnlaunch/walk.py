"""Plan a launch from its command line, and carry it out: who am I, where do I sit, go.

`plan` asks each room one question, in an order that never turns back. The answer is a complete
value, which is given to the rooms that come later. `go` then acts on the answers: it prints, or
becomes the worker, or starts workers.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from spawnlaunch import node
from spawnlaunch.base import errors, say
from spawnlaunch.binding.plan import bind_ranks
from spawnlaunch.cli import flags, parsing, values
from spawnlaunch.node import devices, hardware, visible
from spawnlaunch.workers import files, launches, starting
from spawnlaunch.world import identity, resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch.run.observer import Coordinator
    from spawnlaunch.run.supervisor import MakeObserver


def walk(
    argv: Sequence[str], environ: Mapping[str, str], closed: Sequence[str], blocked: frozenset[int]
) -> int:
    """Run the launch that a command line describes; the result is the exit status.

    `closed` names the standard streams that are closed, `blocked` is the signals that the workers
    are started with blocked. In task mode this process becomes the worker.
    Raises UsageError, and Page for text that is only to be printed.
    """
    return go(plan(argv, environ, closed, blocked))


def plan(
    argv: Sequence[str], environ: Mapping[str, str], closed: Sequence[str], blocked: frozenset[int]
) -> launches.Launch:
    """Return the launch that `walk` goes on with; nothing is started."""
    request = parsing.parse(argv, environ, sys.executable)

    # What is this machine?
    # Only --explain and --bind socket use packages and network adapters.
    needs_all = bool(request.explain) or request.bind.name == values.SOCKET
    machine = node.read(request.sysfs_root, request.allowed_cpus, needs_all)
    seen, capacity = _look(request, machine, environ)

    # Who am I among how many?
    hostname = os.uname().nodename
    resolution = resolve.resolve_world(request, environ, hostname, capacity)
    resolve.refuse_copies(request, resolution)
    if request.need_parent or request.log_dir:
        _refuse_flags_of_other_modes(request, resolution)
    resolution, locked_port = resolve.prepare_host(resolution, hostname)

    # Where do I sit?
    return starting.complete(launches.Launch(
        request=request, resolution=resolution, environ=environ, hostname=hostname,
        plan=bind_ranks(request, machine, seen, resolution), locked_port=locked_port, seen=seen,
        node=machine, scratch=files.scratch_path(environ), argv=tuple(argv),
        closed=tuple(closed), blocked=blocked, group=os.getpgrp(),
    ))  # fmt: skip


def _look(
    request: flags.Request, machine: hardware.Node, environ: Mapping[str, str]
) -> tuple[visible.Visible, identity.Capacity]:
    """The devices that a worker sees of this machine, and for how many workers there is room."""
    word = str(request.nproc or environ.get(values.PET_NPROC))
    seen = visible.visible(machine, environ, values.KINDS.get(word, ""))
    why, are_counted = seen.why, True
    if not (seen.names or why) and word in ("auto", "gpu", *values.KINDS):
        why = devices.why_none(request.sysfs_root)
        are_counted = not why or bool(seen.source)
    if word == "auto" and why:
        seen = visible.counting_cpus(seen, why)
    return seen, identity.Capacity(
        len(seen.names), machine.most_workers, seen.source, seen.vendor, why, seen.unset,
        seen.meant, are_counted,
    )  # fmt: skip


def go(launch: launches.Launch) -> int:
    """Print the explanation, or become the worker, or start workers and watch them."""
    request, resolution = launch.request, launch.resolution
    workers = starting.make_workers(launch)
    if request.explain:
        from spawnlaunch import explaining

        explanation = explaining.Explanation(launch, workers, _warnings(launch, ""))
        raise flags.Page(explaining.page(explanation))
    host = launch.host if resolution.world.has_several_nodes else ""
    warnings = _warnings(launch, host)
    say.say(map("warning: {}".format, warnings))
    if not (request.quiet or resolution.gathering):  # else their ranks are not known yet
        say.say(starting.worker_line(each, launch.node, host) for each in workers)
    if resolution.world.is_task:
        starting.prepare_files(workers)
        # Signals and status are the manager's business.
        starting.exec_worker(workers[0], launch.blocked)
    from spawnlaunch.run import front  # no task needs it

    observers, several = hang_help(launch), coordinator(launch)
    if not request.record:
        return front.run(launch, workers, observers, several)
    from spawnlaunch import explaining
    from spawnlaunch.watch import journal

    explained = explaining.as_json(explaining.Explanation(launch, workers, warnings))
    with journal.recorded(launch, explained) as pipe:
        observers.append(lambda s: journal.Journal(pipe, launch.hostname, s.loop, s.output))
        return front.run(launch, workers, observers, several)


def hang_help(launch: launches.Launch) -> list[MakeObserver]:
    """The functions that make the help for hangs in the guard, where a flag asks for it."""
    if not launch.request.needs_stacks:
        return []
    if launch.resolution.gathering:
        from spawnlaunch.multinode import hangs

        return [hangs.HangOfAll]
    from spawnlaunch.hang import silence

    return [silence.HangHelp]


def coordinator(launch: launches.Launch) -> type[Coordinator] | None:
    """The part of the guard in which the launchers of several nodes act as one."""
    if not launch.resolution.gathering:
        return None
    from spawnlaunch.multinode import node_launch

    return node_launch.NodeLaunch


def _refuse_flags_of_other_modes(request: flags.Request, resolution: identity.Resolution) -> None:
    """Raise FlagsError for flags that cannot be served in task mode, or on several nodes."""
    me = resolution.world
    if request.max_restarts and request.no_gang and me.has_several_nodes and not me.is_task:
        raise errors.FlagsError(
            "--max-restarts restarts the workers of one machine, and this job has "
            f"{me.nnodes or 'several'} nodes, whose other workers would wait for those; leave "
            "--no-gang out"
        )
    if not me.is_task:
        return
    if request.need_parent:
        from spawnlaunch.world import refusals

        line = refusals.launcher_per_node(request, resolution.managers[0], me.local_world_size)
        raise errors.FlagsError(
            f"{request.need_parent[0]} needs a launcher that stays above its workers, and in task "
            "mode there is none; run (all other options as they were, and no -n) one launcher per "
            f"node: {line}"
        )
    if request.log_dir and request.redirects is None:
        raise errors.FlagsError(
            "--log-dir shows the output too, which needs a launcher that stays above its workers, "
            "and in task mode there is none; use --redirects 3 as well, for files alone"
        )


def _warnings(launch: launches.Launch, host: str) -> list[str]:
    """The notices that this process prints; those of the node begin with `host`, if one is given.

    --explain shows all of them.
    """
    is_all, me = bool(launch.request.explain), launch.resolution.world
    is_mine = {say.JOB: is_all or me.rank == 0, say.NODE: is_all or me.local_rank == 0}
    before = {say.JOB: "", say.NODE: f"{host}: " if host else ""}
    return [before[scope] + text for scope, text in launch.notices if is_mine[scope]]

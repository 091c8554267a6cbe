"""One launch from its command line to its workers: who am I, where do I sit, go.

`walk` asks each room one question, in an order that never turns back. The answer is a complete
value, which is given to the rooms that come later. `_go` then acts on the answers: it prints, or
becomes the worker, or starts workers.
"""

from __future__ import annotations

import os
import sys

from spawnlaunch import cli, errors, flags, node, values
from spawnlaunch.binding.plan import bind_ranks
from spawnlaunch.node import hardware, visible
from spawnlaunch.run import environment, launches, say, starting
from spawnlaunch.world import identity, resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def walk(
    argv: Sequence[str],
    environ: Mapping[str, str],
    closed: Sequence[str],
    blocked: frozenset[int],
    owes: Callable[[launches.Worker], bool] = lambda _: False,
) -> int:
    """Launch what a command line asks for; the result is the exit status.

    `closed` names the standard streams that nobody can write to, `blocked` is the signals that the
    workers are started with blocked, and `owes` is that of Launch. In task mode this process
    becomes the worker.
    Raises UsageError, and Page for what is only to be printed.
    """
    request = cli.parse(argv, environ, sys.executable)

    # What is this machine?
    # Only --explain and --bind socket use packages and network adapters.
    needs_all = bool(request.explain) or request.bind.name == values.SOCKET
    machine = node.read(request.sysfs_root, request.allowed_cpus, needs_all)
    seen = visible.visible(machine, environ)

    # Who am I among how many?
    hostname = os.uname().nodename
    first = seen.devices[0] if seen.devices else None
    vendor = "" if first is None else machine.devices[first].vendor
    cpus = len(machine.cpus_allowed or machine.cpus_online)
    capacity = identity.Capacity(len(seen.names), cpus, seen.source, vendor)
    resolution = resolve.resolve_world(request, environ, hostname, capacity)
    resolve.refuse_copies(request, resolution)
    if request.need_parent or request.log_dir:
        _refuse_what_this_mode_cannot(request, resolution, environ)
    resolution, held_port = resolve.prepare_host(resolution, hostname)

    # Where do I sit?
    plan = bind_ranks(request, machine, seen, resolution)

    launch = launches.Launch(
        request=request, resolution=resolution, plan=plan, environ=environ, hostname=hostname,
        scratch=starting.scratch_path(environ), held_port=held_port, seen=seen, owes=owes,
    )  # fmt: skip
    return _go(launch, machine, argv, closed, blocked)


def _go(
    launch: launches.Launch,
    machine: hardware.Node,
    argv: Sequence[str],
    closed: Sequence[str],
    blocked: frozenset[int],
) -> int:
    """Print what --explain asks for, or become the worker, or start workers and watch them."""
    request, resolution, plan_warnings = launch.request, launch.resolution, launch.plan.warnings
    if request.log_dir is not None or request.redirects not in (None, values.StreamsByRank()):
        from spawnlaunch.run import log_place  # few launches keep files

        logs, said = log_place.choose_log_directories(request, resolution, launch.scratch)
        launch, plan_warnings = launch._replace(logs=logs), (*plan_warnings, *said)
    workers = starting.make_workers(launch)
    if request.explain:
        from spawnlaunch import explaining

        warnings = _warnings(launch, plan_warnings, closed, "")
        raise flags.Page(
            explaining.page(explaining.Explanation(launch, machine, workers, warnings))
        )
    host = launch.host if resolution.world.has_several_nodes else ""
    warnings = _warnings(launch, plan_warnings, closed, host)
    say.say(map("warning: {}".format, warnings))
    if not request.quiet:
        lines = [starting.worker_line(each, machine, host) for each in workers]
        if resolution.gathering:  # their ranks are not known yet
            launch = launch._replace(lines=tuple(line.partition("  ")[2] for line in lines))
        else:
            say.say(lines)
    if resolution.world.is_task:
        starting.prepare_files(workers)
        starting.exec_worker(workers[0], blocked)  # signals and status are the manager's business
    from spawnlaunch.run import launcher  # no task needs it

    if not request.record:
        return launcher.run(launch, workers, blocked)
    from spawnlaunch import explaining
    from spawnlaunch.watch import begin

    told = explaining.as_json(explaining.Explanation(launch, machine, workers, warnings))
    with begin.recorded(launch, argv, told, blocked) as pipe:
        return launcher.run(launch._replace(journal=pipe), workers, blocked)


def _refuse_what_this_mode_cannot(
    request: flags.Request, resolution: identity.Resolution, environ: Mapping[str, str]
) -> None:
    """Raise FlagsError for flags that cannot be served in task mode, or on several nodes."""
    me = resolution.world
    if request.max_restarts and me.has_several_nodes and resolution.gathering is None:
        from spawnlaunch.world.managers.slurm import srun

        raise errors.FlagsError(
            "--max-restarts restarts the workers of one machine, and this job has "
            f"{me.nnodes or 'several'} nodes, whose other workers would wait for those; leave "
            "--no-gang out where there is a launcher on each node, or have Slurm start the whole "
            "job anew: #SBATCH --requeue, and behind srun: " + srun.requeue(request.max_restarts)
        )
    if not me.is_task:
        return
    if request.need_parent:
        from spawnlaunch.world import advice

        manager, n = resolution.managers[0], me.local_world_size
        raise errors.FlagsError(
            f"{request.need_parent[0]} needs a launcher that stays above its workers, and in task "
            "mode there is none; type (all other options as they were, and no -n) one launcher per "
            "node: " + advice.launcher_per_node(request, manager, environ, n)
        )
    if request.log_dir and request.redirects is None:
        raise errors.FlagsError(
            "--log-dir shows the output too, which needs a launcher that stays above its workers, "
            "and in task mode there is none; type --redirects 3 as well, for files alone"
        )


def _warnings(
    launch: launches.Launch, plan_warnings: Sequence[str], closed: Sequence[str], host: str
) -> list[str]:
    """Warnings about the job by rank 0, about the node by its first rank: each is printed once.

    `plan_warnings`, of the plan and of the place of logs, are about the node too. Those about the
    node begin with `host`, where one is given. --explain shows all of them.
    """
    request, resolution = launch.request, launch.resolution
    said: list[str] = []
    if resolution.world.rank == 0 or request.explain:
        said += cli.warnings(request, resolution.world.has_several_nodes)
        if (
            request.result or launch.environ.get(environment.ERROR_FILE)
        ) and not resolution.gathering:
            from spawnlaunch.run import routes

            said += routes.own_files(request, resolution.world, launch.environ)
        said += resolution.warnings
    if resolution.world.local_rank == 0 or request.explain:
        node_warnings = [*resolution.node_warnings, *plan_warnings]
        if "stdout" in closed:
            node_warnings.append("stdout is closed: what is written there is lost")
        before = f"{host}: " if host else ""
        said += [before + line for line in node_warnings]
    return said

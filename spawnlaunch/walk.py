"""One launch from its command line to its workers: who am I, where do I sit, go.

`walk` is the whole of it. Each room is given values that are complete, and hands on one of its own;
none is entered twice, and none knows a room that comes later.
"""

from __future__ import annotations

import os
import sys

from spawnlaunch import cli, node
from spawnlaunch.binding.plan import bind_ranks
from spawnlaunch.binding.report import report_line
from spawnlaunch.errors import FlagsError
from spawnlaunch.node.visible import Visible, count_named, visible
from spawnlaunch.request import Page
from spawnlaunch.run import routes, worker
from spawnlaunch.run.say import say
from spawnlaunch.run.worker import Launch
from spawnlaunch.world.model import Capacity
from spawnlaunch.world.resolve import refuse_copies, resolve_world, settle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spawnlaunch.node import Node
    from spawnlaunch.request import Request
    from spawnlaunch.world.model import Resolution


def walk(
    argv: Sequence[str],
    environ: Mapping[str, str],
    closed: Sequence[str],
    mask: frozenset[int],
) -> int:
    """Launch what a command line asks for; the result is the exit status.

    `closed` names the standard streams that nobody can write to, `mask` is the signals that the
    workers are started with blocked. In task mode this process becomes the worker.
    Raises UsageError, and Page for what is only to be printed.
    """
    hostname = os.uname().nodename
    request = cli.parse(argv, environ, sys.executable)

    machine = node.read(request.sysfs_root, request.allowed_cpus, nics=bool(request.explain))
    seen = visible(machine, environ)

    resolution = resolve_world(request, environ, hostname, _capacity(machine, seen, environ))
    refuse_copies(request, resolution)
    _refuse_what_this_mode_cannot(request, resolution, environ)
    resolution, held_port = settle(resolution, environ, hostname)

    plan = bind_ranks(request, machine, seen, resolution.world, environ)

    launch = Launch(
        request=request,
        resolution=resolution,
        bindings=plan.bindings,
        environ=environ,
        hostname=hostname,
        scratch=worker.scratch_path(environ),
        held_port=held_port,
    )
    workers = worker.plan(launch)
    host = routes.short(hostname) if resolution.world.has_several_nodes else ""
    warnings = _warnings(launch, plan.warnings, closed, host)
    if request.explain:
        from spawnlaunch.explaining import Explanation, explained

        explanation = Explanation(resolution, machine, plan, workers, warnings, environ)
        raise Page(explained(explanation, request.explain, hostname))
    say(f"warning: {line}" for line in warnings)
    if not request.quiet:
        say(
            report_line(each.rank, each.binding, machine, each.environ["OMP_NUM_THREADS"], host)
            for each in workers
        )
    if resolution.world.is_task:
        worker.exec_in_place(workers[0], mask)
    from spawnlaunch.run import launcher  # no task needs it

    return launcher.run(launch, workers, mask)


def _capacity(machine: Node, seen: Visible, environ: Mapping[str, str]) -> Capacity:
    """What the world needs to know of the machine."""
    devices = len(seen.devices) or (0 if machine.devices else count_named(environ))
    return Capacity(devices, len(machine.cpus_allowed or machine.cpus_online), seen.source)


def _refuse_what_this_mode_cannot(
    request: Request, resolution: Resolution, environ: Mapping[str, str]
) -> None:
    """Flags that nobody can serve in task mode, or on several nodes. Raises FlagsError."""
    me = resolution.world
    if request.max_restarts and me.has_several_nodes:
        from spawnlaunch.world import advice

        raise FlagsError(
            "--max-restarts starts the workers of one machine anew, and this job has "
            f"{me.nnodes or 'several'} nodes, whose other workers would wait for those; leave it "
            "out, and have Slurm start the whole job anew: #SBATCH --requeue, and behind srun: "
            + advice.requeue(request.max_restarts)
        )
    if not me.is_task:
        return
    if request.need_parent:
        from spawnlaunch.world import advice

        manager, n = resolution.managers[0], me.local_world_size
        raise FlagsError(
            f"{request.need_parent[0]} needs a launcher that stays above its workers, and in task "
            "mode there is none; type (all other options as they were) one launcher per node: "
            + advice.launcher_per_node(request, manager, environ, n)
        )
    if request.log_dir and not request.redirects.used:
        raise FlagsError(
            "--log-dir shows what it keeps, for which a launcher has to stay above its workers, "
            "and in task mode there is none; type --redirects 3 as well, to keep and not to show"
        )


def _warnings(
    launch: Launch, of_the_bindings: Sequence[str], closed: Sequence[str], host: str
) -> list[str]:
    """Of the job by rank 0, of the node by its first rank: nobody reads a line a thousand times.

    `host` is named before what is of this node, where there are several. --explain shows both.
    """
    request, resolution = launch.request, launch.resolution
    said: list[str] = []
    if resolution.world.rank == 0 or request.explain:
        said += cli.warnings(request, resolution.world.has_several_nodes)
        said += routes.own_files(request, resolution.world, launch.environ)
        said += resolution.warnings
    if resolution.world.local_rank == 0 or request.explain:
        of_this_node = [*resolution.of_this_node, *of_the_bindings]
        if "stdout" in closed:
            of_this_node.append("stdout is closed: what is written there is lost")
        before = f"{host}: " if host and not request.explain else ""
        said += [before + line for line in of_this_node]
    return said

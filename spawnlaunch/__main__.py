"""The launcher's entry: walk the rooms in their order, each handing the next a frozen value."""

import gc
import signal

gc.disable()  # nothing is garbage yet, and looking for it is a tenth of what a launch costs
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C from here on without a traceback of ours

import os
import sys
from functools import partial
from io import TextIOWrapper

from spawnlaunch import cli, node, run, world
from spawnlaunch.binding import decide
from spawnlaunch.binding.report import report_line
from spawnlaunch.errors import UsageError
from spawnlaunch.node.visible import visible
from spawnlaunch.request import Request
from spawnlaunch.run import worker
from spawnlaunch.run.say import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch.explain import Explanation


def main() -> int:
    """Run the command line of this process; the result is its exit status."""
    try:
        return _launch()
    except UsageError as error:
        say([f"error: {error}"])
        return 2
    except SystemExit:  # after --help and --version
        _end_with_the_reader()
        raise
    except Exception as error:
        if os.environ.get("SPAWNLAUNCH_DEBUG"):
            raise
        say(
            [
                f"internal error: {type(error).__name__}: {error}; this is a fault of spawnlaunch, "
                "set SPAWNLAUNCH_DEBUG=1 to see where"
            ]
        )
        return os.EX_SOFTWARE


def _launch() -> int:
    environ, hostname = dict(os.environ), os.uname().nodename
    request = cli.parse(sys.argv[1:], environ, sys.executable)
    machine = node.read(request.sysfs_root, request.allowed_cpus)
    seen = visible(machine, environ)
    resolution = world.resolve(
        request,
        environ,
        hostname,
        lambda nproc: decide.count(nproc, request, machine, seen, environ),
    )
    _check_parent(request, resolution)
    resolution, held_port = world.settle(resolution, environ, hostname)
    me = resolution.world
    seats = decide.decide(request, machine, seen, me, environ)
    scratch = run.scratch.path(environ)
    plan = partial(
        worker.plan,
        request,
        seats=seats.bindings,
        environ=environ,
        hostname=hostname,
        scratch=scratch,
        columns=run.terminal.columns(),
    )
    workers = plan(resolution)
    if request.explain:
        from spawnlaunch.explain import Explanation

        warnings = (
            *_of_the_job(request, resolution),
            *resolution.of_this_node,
            *seats.warnings,
        )
        _explain(Explanation(resolution, machine, seats, workers, warnings, environ), request)
        return 0
    say(f"warning: {line}" for line in _to_be_said(request, resolution, seats))
    if not request.quiet:
        say(
            report_line(each.rank, each.seat, machine, each.environ["OMP_NUM_THREADS"])
            for each in workers
        )
    if me.mode == "task":
        run.in_place(workers[0])
    from spawnlaunch.run.options import options

    def again(restart: int) -> list[worker.Worker]:
        nonlocal resolution, held_port
        resolution, held_port = world.anew(resolution, environ)
        return plan(resolution, restart=restart)

    status = run.launch(workers, again, options(request, me.run_id, environ, hostname, scratch))
    del held_port  # held until here
    return status


def _of_the_job(request: Request, resolution: world.Resolution) -> list[str]:
    return [*cli.warnings(request, _has_several_nodes(resolution)), *resolution.warnings]


def _has_several_nodes(resolution: world.Resolution) -> bool:
    return resolution.world.world_size > resolution.world.local_world_size


def _to_be_said(request: Request, resolution: world.Resolution, seats: decide.Seats) -> list[str]:
    """Of the job by rank 0, of the node by its first rank: nobody reads a line a thousand times."""
    me = resolution.world
    of_the_job = _of_the_job(request, resolution) if me.rank == 0 else []
    of_this_node = (*resolution.of_this_node, *seats.warnings) if me.local_rank == 0 else ()
    return [*of_the_job, *of_this_node]


def _check_parent(request: Request, resolution: world.Resolution) -> None:
    """What no launcher can do in this mode, or none of several."""
    me = resolution.world
    if request.need_parent and me.mode == "task":
        flag = request.need_parent[0]
        manager = resolution.managers[0]
        raise UsageError(
            f"{flag} needs a launcher that stays above its workers, and in task mode there is "
            f"none; type one launcher per node: "
            + manager.starting(1, "--nproc", me.local_world_size, flag, "...")
        )
    if request.max_restarts and _has_several_nodes(resolution):
        raise UsageError(
            "--max-restarts starts the workers of one machine anew, and this job has "
            f"{me.nnodes or 'several'} nodes, whose other workers would wait for those; leave it "
            "out, and have Slurm start the whole job anew: #SBATCH --requeue, and srun ... || "
            "scontrol requeue $SLURM_JOB_ID"
        )


def _end_with_the_reader() -> None:
    """Die of SIGPIPE, as other programs do, where nobody reads our stdout to the end."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def _explain(explanation: "Explanation", request: Request) -> None:
    _end_with_the_reader()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a variable may be in any encoding
    from spawnlaunch import explain

    if request.explain == "json":
        import json

        print(json.dumps(explain.as_json(explanation)))
    else:
        print("\n".join(explain.as_text(explanation, colour=sys.stdout.isatty())))


if __name__ == "__main__":
    sys.exit(main())

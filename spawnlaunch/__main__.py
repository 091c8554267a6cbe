"""The launcher's entry: walk the rooms in their order, each handing the next a frozen value."""

import gc
import signal

# Signals that are for the workers wait until there is somebody to pass them on: they would end us.
WORKERS_MASK = frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR1, signal.SIGUSR2)))
gc.disable()  # nothing is garbage yet, and looking for it is a tenth of what a launch costs
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C from here on without a traceback of ours

import os
import sys

if os.getpid() == 1:  # of a container: for that process the kernel has no default actions
    for _stop in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(_stop) is signal.SIG_DFL:
            signal.signal(_stop, lambda signum, _: os._exit(128 + signum))

from functools import partial

from spawnlaunch import cli, node, run, world
from spawnlaunch.binding import decide
from spawnlaunch.binding.report import report_line
from spawnlaunch.errors import FlagsError, UsageError
from spawnlaunch.node.visible import visible
from spawnlaunch.request import Request
from spawnlaunch.run import worker
from spawnlaunch.run.say import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch.explain import Explanation


def main() -> int:
    """Run the command line of this process; the result is its exit status."""
    closed = _closed_streams()
    try:
        return _launch(closed)
    except UsageError as error:
        from spawnlaunch.run import once

        once.refuse(error, os.environ)
        return 2
    except cli.Page as page:
        return _print(str(page), closed)
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


def _closed_streams() -> tuple[str, ...]:
    """The names of the standard streams that are closed; from here on they are /dev/null."""
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return ()
    from spawnlaunch.run import standard

    return standard.hold()


def _launch(closed: tuple[str, ...]) -> int:
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
    world.refuse_copies(request, resolution)
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
        explanation = Explanation(resolution, machine, seats, workers, warnings, environ)
        return _print(_explained(explanation, request, hostname), closed)
    host = run.short(hostname) if _has_several_nodes(resolution) else ""
    say(f"warning: {line}" for line in _to_be_said(request, resolution, seats, closed, host))
    if not request.quiet:
        say(
            report_line(each.rank, each.seat, machine, each.environ["OMP_NUM_THREADS"], host)
            for each in workers
        )
    if me.mode == "task":
        run.in_place(workers[0], WORKERS_MASK)
    from spawnlaunch.run.options import options

    def again(restart: int) -> list[worker.Worker]:
        nonlocal resolution, held_port
        resolution, held_port = world.anew(resolution, environ)
        return plan(resolution, restart=restart)

    how = options(request, me, environ, hostname, scratch)
    status = run.launch(workers, again, how, WORKERS_MASK)
    del held_port  # held until here
    return status


def _of_the_job(request: Request, resolution: world.Resolution) -> list[str]:
    return [
        *cli.warnings(request, _has_several_nodes(resolution)),
        *run.own_files(request, resolution.world, os.environ),
        *resolution.warnings,
    ]


def _has_several_nodes(resolution: world.Resolution) -> bool:
    return resolution.world.world_size > resolution.world.local_world_size


def _to_be_said(
    request: Request,
    resolution: world.Resolution,
    seats: decide.Seats,
    closed: tuple[str, ...],
    host: str,
) -> list[str]:
    """Of the job by rank 0, of the node by its first rank: nobody reads a line a thousand times.

    `host` is named before what is of this node, where there are several.
    """
    me = resolution.world
    of_the_job = _of_the_job(request, resolution) if me.rank == 0 else []
    of_this_node = [*resolution.of_this_node, *seats.warnings]
    if "stdout" in closed:
        of_this_node.append("stdout is closed: what is written there is lost")
    if me.local_rank != 0:
        return of_the_job
    return [*of_the_job, *(f"{host}: {line}" if host else line for line in of_this_node)]


def _check_parent(request: Request, resolution: world.Resolution) -> None:
    """What no launcher can do in this mode, or none of several."""
    me = resolution.world
    if request.max_restarts and _has_several_nodes(resolution):
        from spawnlaunch.world import advised

        raise FlagsError(
            "--max-restarts starts the workers of one machine anew, and this job has "
            f"{me.nnodes or 'several'} nodes, whose other workers would wait for those; leave it "
            "out, and have Slurm start the whole job anew: #SBATCH --requeue, and behind srun: "
            + advised.requeue(request.max_restarts)
        )
    if request.need_parent and me.mode == "task":
        from spawnlaunch.world import advised

        manager, n = resolution.managers[0], me.local_world_size
        raise FlagsError(
            f"{request.need_parent[0]} needs a launcher that stays above its workers, and in task "
            "mode there is none; type (all other options as they were) one launcher per node: "
            + advised.launcher_per_node(request, manager, dict(os.environ), n)
        )
    if request.log_dir and not request.redirects.used and me.mode == "task":
        raise FlagsError(
            "--log-dir shows what it keeps, for which a launcher has to stay above its workers, "
            "and in task mode there is none; type --redirects 3 as well, to keep and not to show"
        )


def _explained(explanation: "Explanation", request: Request, hostname: str) -> str:
    """What --explain prints; the texts of several launchers would come through each other."""
    from spawnlaunch import explain
    from spawnlaunch.run import once

    if request.explain == "json":
        import json

        return json.dumps(explain.as_json(explanation)) + "\n"
    if explanation.resolution.world.rank > 0 and once.daemon_of_many(os.environ):
        return "\n".join(explain.as_lines(explanation, run.short(hostname))) + "\n"
    return "\n".join(explain.as_text(explanation, colour=sys.stdout.isatty())) + "\n"


def _print(text: str, closed: tuple[str, ...]) -> int:
    """Write to stdout; the result is the exit status.

    Where nobody reads it to the end we die of SIGPIPE, as other programs do.
    """
    if "stdout" in closed:
        say(["error: cannot write to stdout: it is closed"])
        return os.EX_IOERR
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    data = text.encode(sys.stdout.encoding, "backslashreplace")  # a variable may be in any encoding
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError as error:
        say([f"error: cannot write to stdout: {error.strerror}"])
        return os.EX_IOERR
    return 0


if __name__ == "__main__":
    sys.exit(main())

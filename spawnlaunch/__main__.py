"""The launcher's entry: walk the rooms in their order, each handing the next a frozen value."""

import os
import sys
from collections.abc import Iterable

from spawnlaunch import binding, cli, explain, node, run, world
from spawnlaunch.errors import UsageError
from spawnlaunch.request import Request
from spawnlaunch.run import worker


def main() -> int:
    """Run the command line of this process; the result is its exit status."""
    try:
        return _launch()
    except UsageError as error:
        _say([f"error: {error}"])
        return 2
    except Exception as error:
        if os.environ.get("SPAWNLAUNCH_DEBUG"):
            raise
        _say(
            [
                f"internal error: {type(error).__name__}: {error}; this is a fault of spawnlaunch, "
                "set SPAWNLAUNCH_DEBUG=1 to see where"
            ]
        )
        return os.EX_SOFTWARE


def _launch() -> int:
    environ, hostname = dict(os.environ), os.uname().nodename
    request = cli.parse(sys.argv[1:], environ, sys.executable)
    machine = node.read()
    resolution = world.resolve(
        request, environ, hostname, lambda nproc: binding.seats(nproc, machine)
    )
    _check_parent(request, resolution.world)
    resolution, held_port = world.settle(resolution, environ, hostname)
    me = resolution.world
    seats = binding.plan(machine, me)
    scratch = os.path.join(environ.get("TMPDIR") or "/tmp", f"spawnlaunch-{os.getpid()}")
    workers = worker.plan(request, resolution, seats, environ, scratch)
    warnings = [*resolution.warnings, *resolution.of_this_node]
    if request.explain:
        _explain(request, resolution, workers, warnings, environ)
        return 0
    _say(f"warning: {line}" for line in _to_be_said(resolution))
    if me.mode == "task":
        run.in_place(workers[0])
    _say(binding.report_line(me.rank + seat.local_rank, seat) for seat in seats)
    status = run.gang(workers, scratch)
    del held_port  # held until here
    return status


def _to_be_said(resolution: world.Resolution) -> list[str]:
    """Of the job by rank 0, of the node by its first rank: nobody reads a line a thousand times."""
    me = resolution.world
    of_the_job = resolution.warnings if me.rank == 0 else ()
    of_this_node = resolution.of_this_node if me.local_rank == 0 else ()
    return [*of_the_job, *of_this_node]


def _check_parent(request: Request, me: world.World) -> None:
    if not request.need_parent:
        return
    flag = request.need_parent[0]
    if me.mode == "task":
        raise UsageError(
            f"{flag} needs a launcher that stays above its workers, and in task mode there is "
            f"none; type one launcher per node: srun --ntasks-per-node=1 python -m spawnlaunch "
            f"--nproc {me.local_world_size} {flag} ..."
        )
    raise UsageError(f"{flag} is not there yet; leave it out")


def _explain(
    request: Request,
    resolution: world.Resolution,
    workers: list[worker.Worker],
    warnings: list[str],
    environ: dict[str, str],
) -> None:
    if request.explain == "json":
        import json

        print(json.dumps(explain.as_json(resolution, workers, warnings, environ)))
    else:
        print("\n".join(explain.as_text(resolution, workers, warnings, environ)))


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        print(f"{cli.PROG}: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

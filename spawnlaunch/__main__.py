"""The launcher's entry: walk the rooms in their order, each handing the next a frozen value."""

import os
import sys

from spawnlaunch import cli
from spawnlaunch.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch.node import Node


def main() -> int:
    """Run the command line of this process; the result is its exit status."""
    try:
        return _launch()
    except UsageError as error:
        print(f"{cli.PROG}: error: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        if os.environ.get("SPAWNLAUNCH_DEBUG"):
            raise
        print(
            f"{cli.PROG}: internal error: {type(error).__name__}: {error}; "
            "this is a fault of spawnlaunch, set SPAWNLAUNCH_DEBUG=1 to see where",
            file=sys.stderr,
        )
        return os.EX_SOFTWARE


def _launch() -> int:
    from spawnlaunch import binding, node, run, world

    request = cli.parse(sys.argv[1:], os.environ, sys.executable)
    machine = node.read()
    me, port = world.resolve(_workers(request, machine))
    seats = binding.plan(machine, me.local_world_size)
    with port.lock:
        return run.local(request, me, seats, os.environ)


def _workers(request: cli.Request, machine: "Node") -> int:
    """How many workers --nproc means on this machine."""
    if request.nproc is None:
        return 1
    if isinstance(request.nproc, int):
        return request.nproc
    return machine.cpu_count


if __name__ == "__main__":
    sys.exit(main())

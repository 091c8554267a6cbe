"""Go: start the workers and watch them."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from spawnlaunch.binding import Binding, report_line
from spawnlaunch.cli import Request
from spawnlaunch.run import worker
from spawnlaunch.run.supervisor import supervise
from spawnlaunch.world import World


def local(
    request: Request, world: World, seats: tuple[Binding, ...], environ: Mapping[str, str]
) -> int:
    """Start the workers of this machine and wait for them; the result is the exit status."""
    with _error_directory(world.run_id, environ) as error_dir:
        workers = worker.plan(request, world, seats, error_dir, environ)
        for seat in seats:
            print(report_line(world.rank + seat.local_rank, seat), file=sys.stderr)
        sys.stderr.flush()
        return supervise(workers)


@contextmanager
def _error_directory(run_id: str, environ: Mapping[str, str]) -> Iterator[str]:
    """A directory for the workers' error files, gone when the launch is over."""
    path = os.path.join(environ.get("TMPDIR") or "/tmp", f"spawnlaunch-{run_id}")
    os.mkdir(path, mode=0o700)
    try:
        yield path
    finally:
        for name in os.listdir(path):
            os.unlink(os.path.join(path, name))
        os.rmdir(path)

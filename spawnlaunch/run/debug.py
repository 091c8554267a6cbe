"""--debug RANK: one rank has the terminal, as if it ran alone; the other ranks go on."""

from __future__ import annotations

from collections.abc import Sequence

from spawnlaunch.base import cpuset, errors, machine, say
from spawnlaunch.workers import launches


def prepared(launch: launches.Launch, workers: Sequence[launches.Worker]) -> launches.Launch:
    """Return the launch without its time limits, after printing what holds for it.

    Raises UsageError.
    """
    rank, size = launch.request.debug, launch.resolution.world.world_size
    if rank is None or rank >= size:
        raise errors.UsageError(
            f"--debug {rank}: there is no such rank; type one of {cpuset.format(range(size))}"
        )
    if all(worker.rank != rank for worker in workers):
        return launch  # it is on another node
    if not machine.isatty(0):
        raise errors.UsageError(
            f"--debug {rank}: stdin is no terminal, so nobody can type anything; start it in a "
            "terminal, through ssh with ssh -t"
        )
    say.say([
        f"--debug: rank {rank} has the terminal, Ctrl-C too; Ctrl-\\ ends the launch, and the "
        "launcher's time limits do not apply",
        "--debug: the other ranks wait in a collective for as long as their process group lets "
        "them (by default 10 minutes with NCCL, 30 with gloo); for longer write "
        "init_process_group(timeout=timedelta(hours=8))",
    ])  # fmt: skip
    return launch._replace(request=launch.request._replace(timeout_s=0.0, hang_timeout_s=0.0))

"""Where each stream of each worker goes: to the launcher's own, to a file, to both or to neither.

flag                    of the ranks it names                       files
(none)                  shown                                       none
--redirects             not shown                                   kept
--tee                   shown                                       kept
--log-dir alone         shown                                       kept
--local-ranks-filter,   only these are shown                        unchanged
--ranks-filter
"""

import os
from typing import NamedTuple

from spawnlaunch.errors import UsageError
from spawnlaunch.node import cpuset
from spawnlaunch.request import Request
from spawnlaunch.streams import STDERR, STDOUT, StreamsByRank
from spawnlaunch.world import World

FILES = {STDOUT: "stdout.log", STDERR: "stderr.log"}  # torchrun's names
DIRECTORY = "{run}/attempt_{restart}/{rank}"  # torchrun's, but by the global rank
PLACEHOLDERS = "{rank} {local_rank} {node_rank} {host} {run} {restart}"


class Route(NamedTuple):
    """One stream of one worker."""

    file: str | None  # path of a file that keeps it
    shown: bool  # on the launcher's own stream

    @property
    def is_redirected(self) -> bool:
        """Whether it goes to the file only, which the worker then writes by itself."""
        return self.file is not None and not self.shown

    def open(self) -> int:
        """The file, to add to it. Raises OSError."""
        assert self.file is not None
        return os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)


class Routes(NamedTuple):
    """Both streams of one worker."""

    stdout: Route
    stderr: Route


def routes(request: Request, world: World, i: int, directory: str | None) -> Routes:
    """The routes of worker `i` of this launcher, whose files are in `directory`, if it has any."""
    rank, local_rank = world.rank + i, world.local_rank + i
    shown = _is_shown(request, rank, local_rank)
    redirected = request.redirects.of(rank, local_rank)
    teed = _tee(request, world).of(rank, local_rank)

    def route(stream: int) -> Route:
        kept = directory is not None and (redirected | teed) & stream
        file = os.path.join(directory, FILES[stream]) if directory and kept else None
        return Route(file, shown and not (redirected & ~teed & stream))

    stdout, stderr = route(STDOUT), route(STDERR)
    if stdout == Route(None, False) and not request.hang_timeout_s:
        stdout = Route(os.devnull, False)  # of stderr the last lines are needed if it fails
    return Routes(stdout, stderr)


def _tee(request: Request, world: World) -> StreamsByRank:
    """Who names a place for files, and nothing else, wants files; but a task has nobody to tee."""
    if request.tee is not None:
        return request.tee
    alone = request.log_dir is not None and not request.redirects.used and world.mode != "task"
    return StreamsByRank(for_all=STDOUT | STDERR if alone else 0)


def _is_shown(request: Request, rank: int, local_rank: int) -> bool:
    if not request.ranks_filter and not request.local_ranks_filter:
        return True
    return rank in request.ranks_filter or local_rank in request.local_ranks_filter


def check_filters(request: Request, world: World) -> None:
    """Raises UsageError for a choice of ranks that shows nobody."""
    for flag, chosen, size in (
        ("--local-ranks-filter", request.local_ranks_filter, world.local_world_size),
        ("--ranks-filter", request.ranks_filter, world.world_size),
    ):
        if chosen and min(chosen) >= size:
            raise UsageError(
                f"{flag} {cpuset.format(chosen)}: there is no such rank; type some of "
                f"{cpuset.format(range(size))}"
            )


def directories(
    log_dir: str | None, world: World, nproc: int, hostname: str, restart: int
) -> list[str | None]:
    """The directories of the local ranks' files, in their order; None: there are no files.

    They are torchrun's (but by the global rank), or the user's template filled in. Raises
    UsageError for a template that cannot be.
    """
    if log_dir is None:
        return [None] * nproc
    template = log_dir if "{" in log_dir else os.path.join(log_dir, DIRECTORY)
    common = {
        "node_rank": world.node_rank,
        "host": short(hostname),
        "run": world.run_id.replace(os.sep, "_"),
        "restart": restart,
    }
    found = []
    for i in range(nproc):
        try:
            path = template.format(rank=world.rank + i, local_rank=world.local_rank + i, **common)
        except (KeyError, ValueError, IndexError, AttributeError):
            raise UsageError(
                f"--log-dir {log_dir}: not a template of {PLACEHOLDERS}; mend it, or write {{{{ "
                "for a {"
            ) from None
        found.append(os.path.abspath(path))
    if len(set(found)) < nproc:
        raise UsageError(
            f"--log-dir {log_dir}: gives several ranks the same directory, {found[0]}; "
            "put {rank} into it"
        )
    return [*found]


def prefix(request: Request, world: World, i: int, hostname: str) -> str:
    """What stands before each line of worker `i`; nothing for one that is alone in the world.

    With several nodes the host's name is there too, as their outputs come together.
    """
    if request.no_prefix or world.world_size == 1:
        return ""
    rank = world.rank + i
    return f"[{short(hostname)}:{rank}] " if (world.nnodes or 1) > 1 else f"[{rank}] "


def short(hostname: str) -> str:
    """The name without its domain."""
    return hostname.partition(".")[0]

"""Where each stream of each worker goes: to the launcher's own, to a file, to both or to neither.

flag                    of the ranks it names                       files
(none)                  shown                                       none
--redirects             not shown                                   kept
--tee                   shown                                       kept
--log-dir alone         shown                                       kept
--local-ranks-filter,   only these are shown                        unchanged
--ranks-filter
"""

from __future__ import annotations

import errno
import os
import stat

from spawnlaunch import cpuset
from spawnlaunch.errors import UsageError
from spawnlaunch.reading import absolute
from spawnlaunch.records import NamedTuple
from spawnlaunch.request import Request
from spawnlaunch.values import STDERR, STDOUT, StreamsByRank
from spawnlaunch.world import World

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILES = {STDOUT: "stdout.log", STDERR: "stderr.log"}  # torchrun's names
DIRECTORY = "{run}/attempt_{restart}/{rank}"  # torchrun's, but by the global rank
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"  # of a worker its own; of ours the user's
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
        """The file, to add to it. Raises OSError.

        Others may be able to write to the directory: a link of theirs is not followed, and a FIFO
        not waited for.
        """
        assert self.file is not None
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOCTTY | os.O_NONBLOCK
        try:
            fd = os.open(self.file, flags | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            _check_link(self.file)
            fd = os.open(self.file, flags, 0o666)
        os.set_blocking(fd, True)
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.ESPIPE, "it is a FIFO, which keeps nothing")
        return fd


def _check_link(path: str) -> None:
    """Raises OSError where a link is not ours, nor root's."""
    owner = os.lstat(path).st_uid
    if owner not in (0, os.geteuid()):
        raise OSError(errno.ELOOP, f"it is a link of another user's (uid {owner})")


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
    ours = [_Place(world.rank + i, world.local_rank + i, world.node_rank, short(hostname))
            for i in range(nproc)]  # fmt: skip
    run = world.run_id.replace(os.sep, "_")
    paths = [_filled_in(template, place, run, restart) for place in (*ours, *_others(ours, world))]
    found = [absolute(path, "--log-dir") for path in paths]
    if len(set(found)) < len(found):
        raise UsageError(
            f"--log-dir {log_dir}: gives several ranks the same directory, {found[0]}; "
            "put {rank} into it"
        )
    return [*found[:nproc]]


class _Place(NamedTuple):
    """What of a rank its directory may be named after."""

    rank: int
    local_rank: int
    node_rank: int | None
    host: str


def _others(ours: list[_Place], world: World) -> Iterator[_Place]:
    """A rank of another launcher on this node, and one on another node, where there are any."""
    last = ours[-1]
    if world.local_world_size > len(ours):
        yield last._replace(rank=last.rank + 1, local_rank=last.local_rank + 1)
    if world.world_size > world.local_world_size:
        rank = last.rank + world.local_world_size
        node_rank = None if last.node_rank is None else last.node_rank + 1
        yield _Place(rank, ours[0].local_rank, node_rank, f"not-{last.host}")


def _filled_in(template: str, place: _Place, run: str, restart: int) -> str:
    try:
        return template.format(**place._asdict(), run=run, restart=restart)
    except (KeyError, ValueError, IndexError, AttributeError):
        raise UsageError(
            f"--log-dir {template}: not a template of {PLACEHOLDERS}; mend it, or write {{{{ for "
            "a {"
        ) from None


def own_file(path: str, world: World) -> str:
    """The name of a file of this launcher's, for which the user has named one for all of a job.

    A device or a FIFO is what it is: several may write to it.
    """
    if world.mode == "task":
        return f"{path}.{world.rank}"
    is_alone = world.world_size == world.local_world_size
    if is_alone or (os.path.exists(path) and not os.path.isfile(path)):
        return path
    return f"{path}.{world.node_rank}"


def own_files(request: Request, world: World, environ: Mapping[str, str]) -> Iterator[str]:
    """What is to be said of these files: said by rank 0, whose launcher is the first."""
    given = (("--result", request.result), (ERROR_FILE, environ.get(ERROR_FILE)))
    for name, path in given:
        if path and path != (own := own_file(path, world)):
            each = "rank" if world.mode == "task" else "node"
            yield f"{name} {path}: each {each} writes a file of its own, this one {own}"


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

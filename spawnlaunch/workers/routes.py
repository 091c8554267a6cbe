"""The way of each worker's streams: to the launcher's own, to a file, to both or to neither.

The files are in a directory of the run below --log-dir.

flag                    of the ranks it names                       files
(none)                  shown                                       none
--redirects             not shown                                   kept
--tee                   shown                                       kept
--log-dir alone         shown                                       kept
--local-ranks-filter,   only these are shown                        unchanged
--ranks-filter
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from spawnlaunch.base import cpuset, errors, machine, reading
from spawnlaunch.cli import flags, values
from spawnlaunch.workers import environment, launches
from spawnlaunch.world import identity

FILES = {values.STDOUT: "stdout.log", values.STDERR: "stderr.log"}  # torchrun's names
PLACEHOLDERS = "{rank} {local_rank} {node_rank} {host} {run} {restart}"
DIRECTORY = "attempt_{restart}/{rank}"  # torchrun's, but by the global rank
LATER = "LAUNCH"  # in place of the name of a launch that is not known yet


def choose_directories(
    request: flags.Request, resolution: identity.Resolution, scratch: str
) -> tuple[str, list[str]]:
    """Return the template of the ranks' directories, and the lines to print about it.

    A run has a directory below DIR that is named after it. Where this launcher alone names it, or
    meets others, each launch has a new name there; the latter are told it then (`in_epoch`). A
    template is taken as it is. Raises UsageError in task mode where there is no DIR.
    """
    base, lines, world = request.log_dir, [], resolution.world
    if base is not None and "{" in base:
        return base, []
    if base is None:
        if world.is_task:
            raise errors.UsageError(
                "--redirects needs a place for the files of all tasks; use --log-dir DIR as well"
            )
        base = os.path.join(os.path.dirname(scratch), f"logs-of-{os.path.basename(scratch)}")
        lines = [f"--redirects without --log-dir DIR: the streams are kept in {base}"]
    run = world.run_id.replace(os.sep, "_")
    if resolution.gathering:
        run = f"{run}-{LATER}"
    elif world.mode == identity.LOCAL and resolution.sources["run_id"].source != identity.CHANCE:
        run = f"{run}-{machine.name_now()}"
    return os.path.join(_escaped(os.path.join(base, run)), DIRECTORY), lines


def in_epoch(launch: launches.Launch, name: str) -> launches.Launch:
    """Return the launch with its directories in an epoch; all launchers are given one new name."""
    if launch.logs is None or "{" in (launch.request.log_dir or ""):
        return launch
    new = _escaped(name.replace(os.sep, "_"))  # another machine has said it
    return launch._replace(logs=launch.logs.replace(f"-{LATER}/", f"-{new}/"))


def _escaped(text: str) -> str:
    """The text with its braces escaped, for use within a template."""
    return text.replace("{", "{{").replace("}", "}}")


def chosen(launch: launches.Launch, restart: int) -> list[tuple[str | None, launches.Routes]]:
    """Return the error file, if files are kept, and the routes of each worker, by local rank.

    Raises UsageError for flags that do not fit the ranks that there are.
    """
    request, world, n = launch.request, launch.resolution.world, len(launch.plan.bindings)
    if not launch.resolution.gathering:  # of nodes with unlike numbers of ranks
        _check_filters(request, world)
    directories = _directories(launch.logs, world, n, launch.host, restart)
    return [
        (files and os.path.join(files, "error.json"), _routes(request, world, i, files))
        for i, files in enumerate(directories)
    ]


def _routes(
    request: flags.Request, world: identity.World, i: int, directory: str | None
) -> launches.Routes:
    """The routes of worker `i` of this launcher; its files are in `directory`, if it has any."""
    rank, local_rank = world.rank + i, world.local_rank + i
    shown = rank in request.ranks_filter or local_rank in request.local_ranks_filter
    shown = shown or not (request.ranks_filter or request.local_ranks_filter)
    redirected = request.redirects.of(rank, local_rank) if request.redirects else 0
    teed = request.tee.of(rank, local_rank) if request.tee is not None else 0
    if request.tee is None and request.log_dir is not None and request.redirects is None:
        teed = values.STDOUT | values.STDERR  # --log-dir alone keeps both, and shows them
    ways = []
    for stream, name in FILES.items():
        goes_to_file = (redirected | teed) & stream
        file = os.path.join(directory, name) if directory and goes_to_file else None
        ways.append(launches.Route(file, shown and not (redirected & ~teed & stream)))
    if ways[0] == launches.Route(None, False) and not request.hang_timeout_s:
        # Of stderr the last lines are needed if it fails.
        ways[0] = launches.Route(os.devnull, False)
    return launches.Routes(*ways)


def _check_filters(request: flags.Request, world: identity.World) -> None:
    """Raise UsageError for a filter that names a rank which is not there."""
    for flag, chosen, size in (
        ("--local-ranks-filter", request.local_ranks_filter, world.local_world_size),
        ("--ranks-filter", request.ranks_filter, world.world_size),
    ):
        if chosen and min(chosen) >= size:
            raise errors.UsageError(
                f"{flag} {cpuset.format(chosen)}: there is no such rank; use some of "
                f"{cpuset.format(range(size))}"
            )


def _directories(
    template: str | None, world: identity.World, nproc: int, host: str, restart: int
) -> list[str | None]:
    """The directories of the local ranks' files, in their order; None: there are no files.

    They are torchrun's (but by the global rank), or the user's template filled in. Raises
    UsageError for a wrong template.
    """
    if template is None:
        return [None] * nproc
    run = world.run_id.replace(os.sep, "_")
    try:
        paths = [
            template.format(
                run=run, restart=restart, host=host, node_rank=world.node_rank,
                rank=world.rank + i, local_rank=world.local_rank + i,
            )
            for i in range(nproc)
        ]  # fmt: skip
    except (KeyError, ValueError, IndexError, AttributeError):
        raise errors.UsageError(
            f"--log-dir {template}: not a template of {PLACEHOLDERS}; correct it, or write {{{{ "
            "for a {"
        ) from None
    paths = [reading.absolute(path, "--log-dir") for path in paths]
    names_node = not world.has_several_nodes or "{host" in template or "{node_rank" in template
    names_worker = world.local_world_size == 1 or "{local_rank" in template
    if "{rank" not in template and not (names_node and names_worker):
        raise errors.UsageError(
            f"--log-dir {template}: gives several ranks the same directory, {paths[0]}; "
            "put {rank} into it"
        )
    return [*paths]


def file_of_launcher(path: str, world: identity.World) -> str:
    """The name of this launcher's file, where the user has named one file for all of a job.

    A device or a FIFO keeps its name: several launchers may write to it.
    """
    if world.is_task:
        return f"{path}.{world.rank}"
    if not world.has_several_nodes or (machine.exists(path) and not machine.isfile(path)):
        return path
    return f"{path}.{world.node_rank}"


def lines_about_files(
    request: flags.Request, world: identity.World, environ: Mapping[str, str]
) -> Iterator[str]:
    """The lines about these files, which rank 0 prints, as its launcher is the first."""
    named = (
        ("--result", request.result),
        (environment.ERROR_FILE, environ.get(environment.ERROR_FILE)),
    )
    for name, path in named:
        if path and path != (path_here := file_of_launcher(path, world)):
            each = "rank" if world.is_task else "node"
            yield f"{name} {path}: each {each} writes a file of its own, this one {path_here}"

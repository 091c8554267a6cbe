"""The place of a run's files: below --log-dir, and never the same for two runs."""

from __future__ import annotations

import itertools
import os

from spawnlaunch.base import errors, machine, reading
from spawnlaunch.cli import flags
from spawnlaunch.workers import files, launches
from spawnlaunch.world import identity

DIRECTORY = "attempt_{restart}/{rank}"  # torchrun's, but by the global rank
MOST_RUNS = 10_000  # of one name; the last directory is used again
LATER = "LAUNCH"  # in place of the name of a launch that is not known yet


def choose_log_directories(
    request: flags.Request, resolution: identity.Resolution, scratch: str
) -> tuple[str, list[str]]:
    """Return the template of the ranks' directories, and the lines to print about it.

    A run has a directory of its own below DIR, named after it: where an earlier run of that name
    has left files of this launcher's first rank, a number is added. Launchers of several nodes that
    meet are told the name of their launch then (`in_epoch`). A template is taken as it is.
    Raises UsageError in task mode where there is no DIR.
    """
    base, said, world = request.log_dir, [], resolution.world
    if base is not None and "{" in base:
        return base, []
    if base is None:
        if world.is_task:
            raise errors.UsageError(
                "--redirects needs a place for the files of all tasks; type --log-dir DIR as well"
            )
        base = os.path.join(os.path.dirname(scratch), f"logs-of-{os.path.basename(scratch)}")
        said = [f"--redirects without --log-dir DIR: the streams are kept in {base}"]
    run = os.path.join(base, world.run_id.replace(os.sep, "_"))
    place = run
    if resolution.gathering:
        place = f"{run}-{LATER}"
    elif not request.explain:
        place = _new_place(run, world.rank)
        if place != run:
            said.append(f"{run} has files of an earlier run, so those of this one are in {place}")
    return os.path.join(_escaped(place), DIRECTORY), said


def _new_place(run: str, rank: int) -> str:
    numbered = (f"{run}_{number}" for number in range(2, MOST_RUNS))
    for place in itertools.chain([run], numbered):
        if _is_new(os.path.join(place, DIRECTORY.format(restart=0, rank=rank))):
            break
    return place


def _is_new(directory: str) -> bool:
    """Make the directory; False where it exists already.

    Errors are reported later, when all directories are made.
    """
    try:
        path = files.resolved(reading.absolute(directory, "--log-dir"))
        files.make_directory(os.path.dirname(path))
        machine.mkdir(path, 0o700)
    except FileExistsError:
        return not machine.isdir(directory)
    except OSError:
        pass
    return True


def in_epoch(launch: launches.Launch, name: str) -> launches.Launch:
    """Return the launch with its directories in an epoch; all launchers are given one new name."""
    if launch.logs is None or "{" in (launch.request.log_dir or ""):
        return launch
    own = _escaped(name.replace(os.sep, "_"))  # another machine has said it
    return launch._replace(logs=launch.logs.replace(f"-{LATER}/", f"-{own}/"))


def _escaped(text: str) -> str:
    """The text with its braces escaped, for use within a template."""
    return text.replace("{", "{{").replace("}", "}}")

"""Where the files of a run are kept: below --log-dir, and no two runs in one place."""

from __future__ import annotations

import itertools
import os

from spawnlaunch.base import errors, machine, reading
from spawnlaunch.cli import flags
from spawnlaunch.workers import files, launches
from spawnlaunch.world import identity

DIRECTORY = "attempt_{restart}/{rank}"  # torchrun's, but by the global rank
MOST_RUNS = 10_000  # of one name; the last one takes what is there
LATER = "LAUNCH"  # in place of the name of a launch that is not known yet


def choose_log_directories(
    request: flags.Request, resolution: identity.Resolution, scratch: str
) -> tuple[str, list[str]]:
    """The template of the directories of ranks, and what is to be said of it.

    A run has a directory of its own below DIR, named after it: where an earlier one of that name
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
    """Make it; False where somebody has. What cannot be made is said when all are."""
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
    """The launch with its place in an epoch: all launchers are told one name, which is new."""
    if launch.logs is None or "{" in (launch.request.log_dir or ""):
        return launch
    own = _escaped(name.replace(os.sep, "_"))  # another machine has said it
    return launch._replace(logs=launch.logs.replace(f"-{LATER}/", f"-{own}/"))


def _escaped(text: str) -> str:
    """Of what is no template."""
    return text.replace("{", "{{").replace("}", "}}")

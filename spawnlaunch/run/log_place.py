"""Where the files of a run are kept: below --log-dir, and no two runs in one place."""

from __future__ import annotations

import os

from spawnlaunch.errors import UsageError
from spawnlaunch.reading import absolute
from spawnlaunch.run import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch.request import Request
    from spawnlaunch.world.model import Resolution

DIRECTORY = "attempt_{restart}/{rank}"  # torchrun's, but by the global rank
MOST_RUNS = 10_000  # of one name; the last one takes what is there


def choose_place(request: Request, resolution: Resolution, scratch: str) -> tuple[str, list[str]]:
    """The template of the directories of ranks, and what is to be said of it.

    A run has a directory of its own below DIR, named after it: where an earlier one of that name
    has left files of this launcher's first rank, a number is added. So two runs never write to the
    same file, though no launcher can ask those of other nodes. A template is the user's business.
    Where the launchers have yet to agree who has which ranks, what is there is added to.
    Raises UsageError in task mode where there is no DIR.
    """
    base, said, world = request.log_dir, [], resolution.world
    if base is not None and "{" in base:
        return base, []
    if base is None:
        if world.is_task:
            raise UsageError(
                "--redirects needs a place for the files of all tasks; type --log-dir DIR as well"
            )
        base = os.path.join(os.path.dirname(scratch), f"logs-of-{os.path.basename(scratch)}")
        said = [f"--redirects without --log-dir DIR: the streams are kept in {base}"]
    run = os.path.join(base, world.run_id.replace(os.sep, "_"))
    place = run
    for number in range(2, MOST_RUNS):
        own = os.path.join(place, DIRECTORY.format(restart=0, rank=world.rank))
        if request.explain or resolution.gathering or _is_new(own):
            break
        place = f"{run}_{number}"
    if place != run:
        said.append(f"{run} has files of an earlier run, so those of this one are in {place}")
    return os.path.join(place.replace("{", "{{").replace("}", "}}"), DIRECTORY), said


def _is_new(directory: str) -> bool:
    """Make it; False where somebody has. What cannot be made is said when all are."""
    try:
        path = files.resolved(absolute(directory, "--log-dir"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.mkdir(path)
    except FileExistsError:
        return not os.path.isdir(directory)
    except OSError:
        pass
    return True

"""Where the files of a run are kept: below --log-dir, and no two runs in one place."""

from __future__ import annotations

import os
from contextlib import suppress

from spawnlaunch import errors, machine, reading
from spawnlaunch.run import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spawnlaunch import flags
    from spawnlaunch.gang import messages
    from spawnlaunch.run import launches
    from spawnlaunch.world import identity

DIRECTORY = "attempt_{restart}/{rank}"  # torchrun's, but by the global rank
MOST_RUNS = 10_000  # of one name; the last one takes what is there
MARK = ".launch"  # a link in the directory of a run on several nodes: whose it is


def choose_log_directories(
    request: flags.Request, resolution: identity.Resolution, scratch: str
) -> tuple[str, list[str]]:
    """The template of the directories of ranks, and what is to be said of it.

    A run has a directory of its own below DIR, named after it: where an earlier one of that name
    has left files of this launcher's first rank, a number is added. So two runs never write to the
    same file, though no launcher can ask those of other nodes. Where they meet, `AgreedPlace` is
    for them. A template is taken as it is.
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
    for number in range(2, MOST_RUNS):
        own = os.path.join(place, DIRECTORY.format(restart=0, rank=world.rank))
        if request.explain or resolution.gathering or _is_new(own):
            break
        place = _numbered(run, number)
    if place != run:
        said.append(_moved(run, place))
    return _template(place), said


def _numbered(run: str, number: int) -> str:
    return run if number == 1 else f"{run}_{number}"


def _template(place: str) -> str:
    return os.path.join(place.replace("{", "{{").replace("}", "}}"), DIRECTORY)


def _moved(run: str, place: str) -> str:
    return f"{run} has files of an earlier run, so those of this one are in {place}"


def _is_new(directory: str) -> bool:
    """Make it; False where somebody has. What cannot be made is said when all are."""
    try:
        path = files.resolved(reading.absolute(directory, "--log-dir"))
        machine.makedirs(os.path.dirname(path), exist_ok=True)
        machine.mkdir(path)
    except FileExistsError:
        return not machine.isdir(directory)
    except OSError:
        pass
    return True


class AgreedPlace:
    """Where the launchers of several nodes keep their files: in directories of one name.

    Each tells the hub which number is new where it is, and is told one that is new everywhere; it
    marks the directory as this launch's, in which it and the others, who may see the same one, go
    on after a restart. A launcher that has come later may have that directory from an earlier run:
    it takes the next one, and says so.
    """

    def __init__(self, launch: launches.Launch) -> None:
        self.first_new = 0  # the number that the hub is told
        self._run = ""
        self._is_said = False
        if launch.logs and "{" not in (launch.request.log_dir or ""):
            run = os.path.dirname(os.path.dirname(launch.logs)).format()
            with suppress(OSError):  # which is said when all directories are made
                self._run = files.resolved(reading.absolute(run, "--log-dir"))
        if self._run:
            new = (n for n in range(1, MOST_RUNS) if not machine.lexists(_numbered(self._run, n)))
            self.first_new = next(new, MOST_RUNS)

    def of(
        self, launch: launches.Launch, start: messages.Start
    ) -> tuple[launches.Launch, list[str]]:
        """The launch with its place in an epoch, and what is to be said of it."""
        if not self._run:
            return launch, []
        numbers = range(max(start.place, 1), MOST_RUNS)
        found = next((n for n in numbers if self._is_ours(n, start.launch)), MOST_RUNS)
        place = _numbered(self._run, found)
        is_told = found > 1 and (start.node_rank == 0 or found != start.place)
        said = [_moved(self._run, place)] if is_told and not self._is_said else []
        self._is_said = True
        return launch._replace(logs=_template(place)), said

    def _is_ours(self, number: int, launch: str) -> bool:
        """Take the directory, if it is new; another of the launchers may do so at the same time."""
        directory = _numbered(self._run, number)
        mark = os.path.join(directory, MARK)
        try:
            if number >= self.first_new:
                machine.makedirs(directory, exist_ok=True)
                machine.symlink(launch, mark)
                return True
        except FileExistsError:
            pass
        except OSError:  # no links there, or what is said when all directories are made
            return True
        try:
            return machine.readlink(mark) == launch
        except OSError:
            return False

"""What became of a launch: the results by rank, or the first failure as an exception."""

from __future__ import annotations

import json
import os
import pickle
from typing import TYPE_CHECKING, Any

from spawnlaunch.calling.shipping import REFUSED, Raised, Returned, get
from spawnlaunch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

SEEN = "its output has what it said"


class LaunchError(RuntimeError):
    """A launch that did not come to its end: somebody told it to end, or a time was over.

    `status` is the launcher's exit status, as the shell has it.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message, status)
        self.status = status

    def __str__(self) -> str:
        return str(self.args[0])


class WorkerError(LaunchError):
    """A function that failed in a rank, the first one where several have.

    `rank` is which; `traceback` is the text of the traceback there, and `__cause__` the exception,
    where it can be pickled. A rank that a signal has killed, or that has ended without returning,
    has neither: the message says how it ended.
    """

    def __init__(self, message: str, status: int, rank: int, traceback: str = "") -> None:
        super().__init__(message, status)
        self.args = (message, status, rank, traceback)
        self.rank = rank
        self.traceback = traceback


def refusal(directory: str) -> UsageError | None:
    """Why the launcher has started nothing; None: it has."""
    try:
        with open(os.path.join(directory, REFUSED)) as file:
            return UsageError(file.read())
    except FileNotFoundError:
        return None


def results(directory: str, ended: str, status: int) -> list[Any]:
    """What the functions of this node's ranks returned, by rank; raises what went wrong.

    `ended` is the file of --result, and `status` the launcher's exit status.
    """
    if refused := refusal(directory):
        raise refused
    told = _told(ended)
    attempt = len(told["restarts"]) if told else _last_attempt(directory)
    if status:
        raise _failure(directory, attempt, told, status)
    found = []
    for rank in _ranks(directory, attempt, told):
        outcome = _outcome(directory, attempt, rank)
        if not isinstance(outcome, Returned):
            raise WorkerError(f"rank {rank} ended before its function returned; {SEEN}", 0, rank)
        found.append(outcome.value)
    return found


def _told(ended: str) -> Any:
    """The content of the file of --result; None where there is none, as on all nodes but one."""
    try:
        with open(ended) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def _last_attempt(directory: str) -> int:
    return max((attempt for attempt, _ in _left(directory)), default=0)


def _left(directory: str) -> list[tuple[int, int]]:
    """Attempt and rank of each outcome that is there."""
    names = [name.split(".") for name in os.listdir(directory)]
    return [
        (int(name[0]), int(name[1])) for name in names if name[0].isdecimal() and len(name) == 2
    ]


def _ranks(directory: str, attempt: int, told: Any) -> list[int]:
    """Those of this node, in their order; of others the launcher knows no pid."""
    if told:
        return [one["rank"] for one in told["ranks"] if "pid" in one]
    return sorted(rank for each, rank in _left(directory) if each == attempt)


def _outcome(directory: str, attempt: int, rank: int) -> object:
    """What a rank has left; None: nothing. Raises LaunchError where it cannot be read here."""
    try:
        return get(os.path.join(directory, f"{attempt}.{rank}"))
    except FileNotFoundError:
        return None
    except Exception as error:
        raise LaunchError(
            f"what rank {rank} returned cannot be unpickled here: {type(error).__name__}: {error}",
            0,
        ) from error


def _failure(directory: str, attempt: int, told: Any, status: int) -> LaunchError:
    """The exception for a launch that ended with a status."""
    cause = told and told["cause"]
    if cause == "timeout":
        return LaunchError("the launch took longer than its timeout, and was ended", status)
    if cause == "signal":
        return LaunchError(f"the launch was ended by {told['signal']}", status)
    if cause not in ("failure", None):
        return LaunchError(f"the launch ended with status {status}; {SEEN}", status)
    if cause:
        return _first(directory, attempt, told, status)
    for each, rank in sorted(_left(directory)):
        outcome = _outcome(directory, attempt, rank) if each == attempt else None
        if isinstance(outcome, Raised):
            return _raised(outcome, rank, status)
    how = "was killed by signal " + str(-status) if status < 0 else f"ended with status {status}"
    return LaunchError(f"the launcher {how}; {SEEN}", status)


def _first(directory: str, attempt: int, told: Mapping[str, Any], status: int) -> LaunchError:
    rank = told["first_failure"]
    outcome = _outcome(directory, attempt, rank)
    if isinstance(outcome, Raised):
        return _raised(outcome, rank, status)
    one = next(one for one in told["ranks"] if one["rank"] == rank)
    how = (
        f"was killed by {one['signal']}" if one["signal"] else f"ended with status {one['status']}"
    )
    why = f" ({told['oom']})" if told["oom"] else ""
    return WorkerError(f"rank {rank} {how}{why}; {SEEN}", status, rank)


def _raised(outcome: Raised, rank: int, status: int) -> WorkerError:
    message = f"rank {rank}: {outcome.words}\n\n{outcome.traceback.rstrip()}"
    error = WorkerError(message, status, rank, outcome.traceback)
    try:
        cause = pickle.loads(outcome.data) if outcome.data else None
    except Exception:  # many exceptions cannot be made of their arguments
        cause = None
    if isinstance(cause, BaseException):
        error.__cause__ = cause
    return error

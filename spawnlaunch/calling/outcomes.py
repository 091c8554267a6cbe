"""The outcome of a launch: the results by rank, or the first failure as an exception."""

from __future__ import annotations

import json
import os
import pickle
import sys
from contextlib import suppress
from typing import Any
from unittest import SkipTest

from spawnlaunch.base import errors
from spawnlaunch.calling import sending
from spawnlaunch.outcome import failures

HINT = "its output may say why"
LOOK = "look for os._exit(0), or an exec, in it and in what it calls"


class LaunchError(RuntimeError):
    """A launch that did not end by itself: a signal or a time limit ended it.

    `status` is the launcher's exit status, as the shell has it.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message, status)
        self.status = status

    def __str__(self) -> str:
        return str(self.args[0])


class WorkerError(LaunchError):
    """A function that failed in a rank; if it failed in several, the first.

    `rank` is that rank; `traceback` is the text of the traceback there, and `__cause__` the
    exception, with its own causes. A rank that a signal has killed, or that has ended without
    returning, has neither: the message says how it ended.
    """

    def __init__(self, message: str, status: int, rank: int, traceback: str = "") -> None:
        super().__init__(message, status)
        self.args = (message, status, rank, traceback)
        self.rank = rank
        self.traceback = traceback


def results(directory: str, ended: str, status: int) -> list[Any]:
    """Return the results of the functions of this node's ranks, by rank.

    A failure is raised. `ended` is the file of --result, and `status` the launcher's exit status.
    """
    with suppress(FileNotFoundError), open(os.path.join(directory, sending.REFUSED)) as file:
        raise errors.UsageError(file.read())
    if not os.path.isdir(directory):
        raise LaunchError(f"{directory} was removed, and with it what the ranks returned", status)
    ends = None
    with suppress(OSError, ValueError), open(ended) as file:  # it is on one node only
        ends = json.load(file)
    # The attempt and the rank of each outcome that is there, or that is missing and noted.
    names = [name.removesuffix(sending.UNFINISHED).split(".") for name in os.listdir(directory)]
    named = [(int(n[0]), int(n[1])) for n in names if n[0].isdecimal() and len(n) == 2]
    attempt = len(ends["restarts"]) if ends else max((n for n, _ in named), default=0)
    ranks = sorted(rank for each, rank in named if each == attempt)
    if status or (ends and ends["cause"]):
        raise noted(_failure(directory, attempt, ranks, ends, status), directory)
    if ends:  # the launcher knows the pids of this node's ranks only
        ranks = [end["rank"] for end in ends["ranks"] if "pid" in end]
    values = []
    for rank in ranks:
        outcome = _outcome(directory, attempt, rank)
        if not isinstance(outcome, sending.Returned):
            raise WorkerError(f"rank {rank} ended before its function returned; {HINT}", 0, rank)
        values.append(outcome.value)
    return values


def _outcome(directory: str, attempt: int, rank: int) -> object:
    """A rank's outcome; None: there is none. Raises LaunchError where it cannot be read here."""
    try:
        return sending.get(os.path.join(directory, f"{attempt}.{rank}"))
    except FileNotFoundError:
        return None
    except Exception as error:
        raise LaunchError(
            f"what rank {rank} returned cannot be unpickled here: {error!r}; return numbers, text, "
            "tensors, or records of them (of a DistributedDataParallel its module.state_dict())",
            0,
        ) from error


def _failure(
    directory: str, attempt: int, ranks: list[int], ends: Any, status: int
) -> BaseException:
    """The exception for a launch that ended with a status; `ends` is the content of --result."""
    if ends and ends["cause"] == "failure":
        rank = ends["first_failure"]
        error = _of_rank(directory, attempt, rank, status)
        return error or WorkerError(f"{ends['why']}; {HINT}", status, rank)
    if ends and ends["cause"]:
        return LaunchError(f"{ends['why']}; {HINT}", status)
    for rank in ranks:
        error = _of_rank(directory, attempt, rank, status)
        # A handler of SIGTERM may call sys.exit: it was told to end.
        if error and SystemExit not in (type(error), type(error.__cause__)):
            return error
    return LaunchError(f"the launcher {failures.end_in_words(status)}; {HINT}", status)


def _of_rank(directory: str, attempt: int, rank: int, status: int) -> BaseException | None:
    """The exception of a rank that has raised one, or that ended with 0 and left no outcome."""
    outcome = _outcome(directory, attempt, rank)
    if isinstance(outcome, sending.Raised):
        return _raised(outcome, rank, status)
    unfinished = os.path.join(directory, f"{attempt}.{rank}{sending.UNFINISHED}")
    with suppress(OSError), open(unfinished) as file:
        return WorkerError(f"{file.read()}: {LOOK}; {HINT}", status, rank)
    return None


def _raised(outcome: sending.Raised, rank: int, status: int) -> BaseException:
    """The exception that the caller gets for the one that a rank raised.

    An error becomes the cause of a WorkerError. An exception that means "end" or "skip" (SystemExit
    with a status, KeyboardInterrupt, unittest.SkipTest) is raised as itself, so that a shell or a
    runner of tests understands it. sys.exit(0) is a WorkerError: the function never returned.
    """
    error, words = Exception(outcome.words), outcome.words
    if outcome.error is not None:
        with suppress(Exception):  # a module that is not here
            error = pickle.loads(outcome.error)
    ends_well = isinstance(error, SystemExit) and not error.code
    if ends_well:
        words = "sys.exit(0) before the function returned; let it return"
    message = f"rank {rank}: {words}\n\n{outcome.traceback.rstrip()}"
    failure = WorkerError(message, status, rank, outcome.traceback)
    if ends_well or (isinstance(error, Exception) and not isinstance(error, SkipTest)):
        failure.__cause__ = error
        return failure
    error.__cause__ = failure
    return error


def noted(error: BaseException, directory: str) -> BaseException:
    """Add the launcher's messages, which --quiet has kept back, to the exception."""
    with suppress(OSError), open(os.path.join(directory, sending.SAID)) as file:
        messages = file.read().rstrip()
        if messages and sys.version_info >= (3, 11):
            error.add_note(messages)
        elif messages and isinstance(error, LaunchError):
            error.args = (f"{error.args[0]}\n\n{messages}", *error.args[1:])
    return error

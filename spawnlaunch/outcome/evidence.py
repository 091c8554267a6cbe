"""Evidence about a worker's failure: whether it was the worker's own, and when it began.

torch's @record writes the time of an exception into the error file, in whole seconds of the wall
clock. The file is written at once, so its own time is finer; but it may be another machine's.
"""

from __future__ import annotations

from spawnlaunch.base import machine
from spawnlaunch.node import cgroup
from spawnlaunch.outcome import endings, failures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Last words of a process that aborts itself: by libstdc++ and libc++ (std::terminate), assert(3),
# glibc (mallopt(3), M_CHECK_ACTION; gcc's -fstack-protector) and Python's faulthandler.
ABORTS_WORDS = (
    *("terminate called ", "libc++abi: terminating", "Assertion `", "Fatal Python error"),
    *("double free or corruption", "corrupted ", "free(): ", "*** stack smashing detected"),
)

TICK_S = 0.01  # by which the time of a file may be too early (CONFIG_HZ=100)
UNCAUGHT = 1  # Python's exit status after an exception, to which the launcher's signal came first
WHOLE_S = 1.0  # the same for a time in whole seconds


def judged(
    exited: failures.WorkerExit, host: str, kills_before: cgroup.MemoryKills | None
) -> tuple[failures.WorkerExit, failures.Failure | None]:
    """Judge the end of a worker that failed: when that began, and whether the failure was its own.

    The result is the worker's record with that time, and its failure, if it was its own.
    """
    words = endings.last_words(exited) or ""
    written_at = _written_at(exited)
    has_abort_words = any(each in words for each in ABORTS_WORDS)
    if exited.code == -failures.SIGABRT and has_abort_words:  # its core may have been dumped since
        written_at = min(written_at, exited.last_output_at + failures.LATE_S)
    if written_at < exited.failed_between[1]:
        exited = exited._replace(failed_between=(written_at, written_at))
    earliest, latest = exited.failed_between
    if latest >= exited.signalled_at - failures.LATE_S:  # it was told to end before
        return exited, None
    oom = endings.out_of_memory(kills_before, cgroup.memory_kills())
    code = UNCAUGHT if exited.code == -exited.sent else exited.code
    cause = failures.Cause("failure", host, exited.rank, code, words, exited.pid or 0, oom)
    return exited, failures.Failure(cause, latest, latest - earliest)


def _time_in(record: Any) -> float | None:
    """The time of a worker's failure by its error file, in seconds since 1970; None: there is none.

    It is the beginning of a second, as torch writes no fraction.
    """
    try:
        seconds = float(record["message"]["extraInfo"]["timestamp"])
    except (TypeError, KeyError, ValueError, OverflowError):
        return None
    return seconds if seconds == seconds else None  # not nan


def _written_at(exited: failures.WorkerExit) -> float:
    """The time at which torch's error file was written, by the monotonic clock.

    It is the worker's end where there is no file, or no time in it. The file's own time counts
    where it is in the second that the file names, else the end of that second; and never a time
    outside the worker's life, as the wall clock may have been set meanwhile.
    """
    try:
        written = machine.lstat(exited.error_file or "").st_mtime
    except OSError:
        return exited.ended_at
    named = _time_in(endings.read(exited.error_file))
    if named is None:
        return exited.ended_at
    latest = named + WHOLE_S
    when = written if named <= written <= latest else latest
    age_s = machine.time() - when - TICK_S
    return min(max(exited.started_at, machine.monotonic() - age_s), exited.ended_at)

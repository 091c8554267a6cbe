"""The words for the events of a launch, and the files that report them to programs.

One line is printed at each event, and a report of all ranks at the end. The report ends with the
first failure's own traceback, so that a person sees it last. Few launches come to this.

A worker's error file has the format of torch.distributed.elastic.multiprocessing.errors:

    {"message": {"message": "ValueError: bad", "extraInfo": {"py_callstack": "Traceback ...",
                                                             "timestamp": "1760000000"}}}

where older versions, and programs of the user's, write a plain string as the outer "message".

The file of --result is:

    {"status": 7, "cause": "failure", "signal": null, "first_failure": 1, "host": "node0",
     "why": "rank 1 on node0 (pid 4714) exited with status 7 after 1.2 s",
     "run_id": "20261127T093015Z-1c9e04f2", "oom": null,
     "restarts": [{"cause": "failure", "rank": 3, "status": 139, "signal": "SIGSEGV",
                   "seconds": 8.5}, ...],
     "ranks": [{"rank": 0, "local_rank": 0, "pid": 4713, "status": 143, "signal": "SIGTERM",
                "told": "SIGTERM", "seconds": 1.25, "user_seconds": 1.1, "system_seconds": 0.1,
                "peak_bytes": 52428800, "involuntary_switches": 7, "major_faults": 0}, ...]}

`status` is an exit status as the shell has it; 74 without a cause means that output was lost.
`signal` names the signal that ended a rank (above: the launch), `told` the one that the launcher
had sent it before; both are null where there was none. `restarts` has one entry for each attempt
that was followed by another, with the rank that failed first; all else is about the last attempt.
Of the ranks of other nodes only rank, status and signal are known here; a lost rank's status is
null.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence

from spawnlaunch.base import cpuset, errors, machine, reading, say
from spawnlaunch.base.signals import signal
from spawnlaunch.cli import active, flags
from spawnlaunch.node import cgroup
from spawnlaunch.outcome import failures
from spawnlaunch.workers import environment, files, launches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024  # units of ru_maxrss (getrusage(2))
TELLING = 0.1  # share of the memory from which on it may explain a SIGKILL
TAIL_BYTES = 16384
TAIL_LINES = 60
TRACEBACK = "Traceback (most recent call last):"
# Last words of a process that aborts itself: by libstdc++ and libc++ (std::terminate), assert(3),
# glibc (mallopt(3), M_CHECK_ACTION; gcc's -fstack-protector) and Python's faulthandler.
ABORTS_WORDS = (
    *("terminate called ", "libc++abi: terminating", "Assertion `", "Fatal Python error"),
    *("double free or corruption", "corrupted ", "free(): ", "*** stack smashing detected"),
)

TICK_S = 0.01  # by which the time of a file may be too early (CONFIG_HZ=100)
WHOLE_S = 1.0  # the same for a time in whole seconds
UNCAUGHT = 1  # Python's exit status after an exception, to which the launcher's signal came first


def announced(
    event: failures.Cause | str, ranks: Sequence[int], launch: launches.Launch, grace_s: float
) -> str:
    """The line for what `Decisions` announces; `ranks` still run, and have `grace_s` to end."""
    grace, host = f"{grace_s:g} s", launch.hostname
    match event:
        case "interrupt":
            return f"Ctrl-C: the worker has {grace} to end; Ctrl-C again kills it"
        case "again":
            return "SIGINT again: killing the workers"
        case "overdue":
            return f"{_ranks(ranks)} on {host} still ran after {grace}: killed"
        case "stuck":
            return (
                f"{_ranks(ranks)} on {host} did not die of SIGKILL within {failures.STUCK_S:g} s "
                "and must be stuck in the kernel (a lost file system, a wedged driver); waiting "
                "for it"
            )
    assert not isinstance(event, str)
    if event.kind == "failure":
        return f"{event.in_words}; stopping {_ranks(ranks)}"
    if event.kind == "gone":
        return f"{event.in_words}: ended the workers"
    return f"{event.in_words}: stopping the workers by SIGTERM, after {grace} by SIGKILL"


def silence(stopped: Collection[int], launch: launches.Launch) -> str:
    """The line for workers that have been silent for --hang-timeout; some of them are stopped."""
    limit = f"{launch.request.hang_timeout_s:g} s"
    if not stopped:
        return f"no output from any rank for {limit}"
    are = "is" if len(stopped) == 1 else "are"
    return f"{_ranks(sorted(stopped))} on {launch.hostname} {are} stopped, for {limit} now"


def ended_early(cause: failures.Cause, request: flags.Request) -> str:
    """The line for a launch that is to end while modules are imported for workers to come."""
    return f"{cause.in_words}: --preload {','.join(request.preload)} was still being imported"


def summary(result: failures.LaunchResult, hostname: str) -> Iterator[str]:
    """The report of a launch that failed, the first failure first, or that was told to end."""
    cause, first = result.cause, result.first_failure
    listed = _listed(result)
    if cause and first:
        first_of = " first" if listed else ""
        line = f"failed{first_of}{after_restarts(len(result.restarted))}: {cause.in_words}"
        if first.code > 0 and {exited.code for exited in listed} == {first.code}:
            yield f"{line}, and so did all other ranks"
            return
        if first.code == errors.WRONG_USE and all(
            exited.code == errors.WRONG_USE or _is_stopped(exited) for exited in listed
        ):  # which met the same error, or were ended before they could
            stopped = _ranks([exited.rank for exited in listed])
            yield f"{line}; the launcher stopped {stopped}" if listed else line
            return
        yield line
    width = len(str(max((exited.rank for exited in result.exits), default=0)))
    for exited in listed:
        named = failures.worker(exited.rank, hostname, exited.pid, width)
        yield f"  {named} {_end_of_other(exited)}"
    if first:
        yield from _memory_of(first)
    elif cause and cause.oom:
        yield cause.oom


def _listed(result: failures.LaunchResult) -> list[failures.WorkerExit]:
    """The other ranks beside the first failure; where there is none, those that ended otherwise.

    In the latter case workers that ended with status 0 or by the launcher's signal are not listed;
    those that had to be killed have been named.
    """
    first = result.first_failure
    others = sorted(exited for exited in result.exits if exited != first)
    if first:
        return others
    are_alike = len({exited.code for exited in others}) < 2
    return (
        [] if are_alike else [exited for exited in others if exited.code not in (0, -exited.sent)]
    )


def after_restarts(n: int) -> str:
    return f", after {n} restart{'s' if n > 1 else ''}" if n else ""


def _memory_of(first: failures.WorkerExit) -> Iterator[str]:
    """The memory that a rank had used, if a SIGKILL ended it and memory may be the reason."""
    if not first.used or first.code != -signal.SIGKILL or first.sent:
        return
    counted = cgroup.memory_kills()
    limit = machine.sysconf("SC_PHYS_PAGES") * machine.sysconf("SC_PAGE_SIZE")
    if counted and counted.limit:
        limit = min(limit, counted.limit)
    peak = first.used.ru_maxrss * MAXRSS_BYTES
    if peak >= TELLING * limit:
        share = f"{peak / limit:.0%} of the {limit >> 20} MiB that there are"
        yield f"rank {first.rank} had used {peak >> 20} MiB, {share}"


def out_of_memory(before: cgroup.MemoryKills | None, after: cgroup.MemoryKills | None) -> str:
    """The reason of a SIGKILL, by two of the kernel's counts of memory kills; "": another."""
    if before is None or after is None or after.killed <= before.killed:
        return ""
    n, limit = after.killed - before.killed, after.limit
    shown = f", whose limit is {limit >> 20} MiB" if limit and limit < 1 << 60 else ""
    return (
        f"out of memory: meanwhile the kernel killed {n} process{'es' if n > 1 else ''} of this "
        f"cgroup{shown} ({after.path}: oom_kill {before.killed} to {after.killed})"
    )


def _end_of_other(exited: failures.WorkerExit) -> str:
    """How another rank ended: by itself, or because it was told to."""
    if exited.is_unreaped:
        return "could not be killed"
    if _is_stopped(exited):
        return "was stopped by the launcher" + " (SIGKILL)" * (exited.code == -signal.SIGKILL)
    words = failures.end_in_words(exited.code)
    if exited.sent:
        words += f" after {failures.signal_name(exited.sent)} from the launcher"
    return words


def _is_stopped(exited: failures.WorkerExit) -> bool:
    """Whether the launcher's signal ended the worker."""
    codes = (-exited.sent, -signal.SIGTERM)  # SIGKILL comes later, and may find it about to end
    return bool(exited.sent) and not exited.is_unreaped and exited.code in codes


def _ranks(ranks: Sequence[int]) -> str:
    listed = cpuset.format(ranks)
    return f"rank {listed}" if len(ranks) == 1 else f"ranks {listed}"


# Files and output that tell of a worker's failure


def last_words(failure: failures.WorkerExit) -> str | None:
    """The traceback or the last output of a failed worker; None where neither is kept."""
    words = traceback_in(read(failure.error_file))
    return words[-TAIL_BYTES:] if words else _last_output(failure)


def traceback_in(record: Any) -> str | None:
    """The traceback in the content of an error file, else its message."""
    message = record.get("message") if isinstance(record, dict) else None
    if isinstance(message, str):
        return message
    if not isinstance(message, dict):
        return None
    extra = message.get("extraInfo")
    stack = extra.get("py_callstack") if isinstance(extra, dict) else None
    text = stack or message.get("message")
    return text if isinstance(text, str) else None


def read(path: str | None) -> Any:
    """The content of an error file; None where there is none, or none that can be read.

    A worker may have written anything there, for which a parser may raise anything.
    """
    text = path and reading.file_text(path)
    if not text:
        return None
    try:
        return json.loads(text)
    except Exception:  # also RecursionError and MemoryError
        return None


def _last_output(failure: failures.WorkerExit) -> str | None:
    """The last lines that a worker wrote to its stderr, to whichever file that went."""
    if failure.tail:
        lines = failure.tail.splitlines()
    else:
        path, begin = failure.stderr, failure.stderr_begin
        text, is_all = (path and reading.end_of_file(path, TAIL_BYTES, begin)) or ("", True)
        lines = text.splitlines()[not is_all :]
    return "\n".join(lines[-TAIL_LINES:]) or None


def is_shown(words: str, shown: str) -> bool:
    """Whether the output that was shown last has these words whole.

    Where the words have a traceback, only the part from there on counts. The traceback in an error
    file begins at the line that called `record`; the one that was shown has the lines above it too.
    """
    _, header, rest = words.partition(TRACEBACK)
    before, there, _ = shown.partition((rest if header else words).strip())
    return bool(there) and header in before


def print_last_lines(
    rank: int | None, host: str, words: str, patience_s: float = say.PATIENCE_S
) -> None:
    """Print the last words of a worker."""
    say.say([f"the last lines of rank {rank} on {host}:"], patience_s)
    say.write(words.rstrip("\n") + "\n", patience_s)


def print_last_words(
    exited: failures.WorkerExit, host: str, shown: str | None, patience_s: float
) -> None:
    """Print the last words of a failed worker, and the file that has them.

    Words that were `shown` last are left out (None: all were).
    """
    words = last_words(exited)
    if words and shown is not None and not is_shown(words, shown):
        print_last_lines(exited.rank, host, words, patience_s)
    print_log_place(exited, patience_s)


def print_environment_hint(
    exited: failures.WorkerExit, launch: launches.Launch, patience_s: float
) -> None:
    """Print a hint where a module is missing, and the active environment is not the workers'."""
    request, is_by_itself = launch.request, exited.tail is None and not exited.stderr
    if exited.code != 1 or request.program.kind == "program":
        return
    words = last_words(exited)
    line = active.other(request.python, launch.environ, None if is_by_itself else words or "")
    say.say([line] * bool(line), patience_s)


def print_log_place(exited: failures.WorkerExit, patience_s: float = say.PATIENCE_S) -> None:
    """Name the file with the output of a failed worker, if one was kept."""
    logs = [(name, path) for name, path in (("stderr", exited.stderr), ("stdout", exited.stdout))
            if path not in (None, os.devnull)]  # fmt: skip
    if logs:
        name, path = logs[0]
        say.say([f"the {name} of rank {exited.rank} is in {path}"], patience_s)


# Evidence about a worker's failure: whether it was the worker's own, and when it began. torch's
# @record writes the time of an exception into the error file, in whole seconds of the wall clock.
# The file is written at once, so its own time is finer; but it may be another machine's.


def judged(
    exited: failures.WorkerExit, host: str, kills_before: cgroup.MemoryKills | None
) -> tuple[failures.WorkerExit, failures.Failure | None]:
    """Judge the end of a worker that failed: when that began, and whether the failure was its own.

    The result is the worker's record with that time, and its failure, if it was its own.
    """
    words = last_words(exited) or ""
    written_at = _written_at(exited)
    has_abort_words = any(each in words for each in ABORTS_WORDS)
    if exited.code == -failures.SIGABRT and has_abort_words:  # its core may have been dumped since
        written_at = min(written_at, exited.last_output_at + failures.LATE_S)
    if written_at < exited.failed_between[1]:
        exited = exited._replace(failed_between=(written_at, written_at))
    earliest, latest = exited.failed_between
    if latest >= exited.signalled_at - failures.LATE_S:  # it was told to end before
        return exited, None
    oom = out_of_memory(kills_before, cgroup.memory_kills())
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
    named = _time_in(read(exited.error_file))
    if named is None:
        return exited.ended_at
    latest = named + WHOLE_S
    when = written if named <= written <= latest else latest
    age_s = machine.time() - when - TICK_S
    return min(max(exited.started_at, machine.monotonic() - age_s), exited.ended_at)


# Files for programs


def write_files(
    result: failures.LaunchResult,
    launch: launches.Launch,
    elsewhere: Iterable[tuple[int, int | None]] | None = (),
) -> bool:
    """Write the files that the user asked for; the result is whether that of --result was.

    `elsewhere` is that of `write_result`; None: another node has the file of --result.
    """
    failure, is_written = result.first_failure, True
    if launch.result and elsewhere is not None:
        is_written = write_result(result, launch, elsewhere)
    if result.cause and failure and launch.error_file:
        copy_error_file(result.cause, failure, launch.error_file)
    return is_written


def copy_error_file(cause: failures.Cause, failure: failures.WorkerExit, path: str) -> None:
    """Copy the first failure to the error file that the user named, or print why not."""
    record = read(failure.error_file)
    if not isinstance(record, dict):
        stack, now = _last_output(failure) or "", str(int(machine.time()))
        words = cause.in_words
        extra = {"py_callstack": stack, "timestamp": now}
        record = {"message": {"message": words, "extraInfo": extra}}
    if isinstance(record.get("message"), dict):
        record["message"].setdefault("errorCode", failures.exit_status(failure.code))
    _write(record, path, environment.ERROR_FILE)


def write_result(
    result: failures.LaunchResult,
    launch: launches.Launch,
    elsewhere: Iterable[tuple[int, int | None]] = (),
) -> bool:
    """Write the file of --result, ranks in their order, or print why not.

    `elsewhere` is rank and code of the workers of other nodes; None: the worker was lost with its
    node.
    """
    record: dict[str, Any] = {
        "status": result.status,
        **dict.fromkeys(("cause", "why", "signal", "first_failure")),
        "host": launch.hostname,
        "run_id": launch.resolution.world.run_id,
        "oom": None,
        "restarts": [
            {
                "cause": cause.kind,
                "rank": cause.rank if cause.kind == "failure" else None,
                "status": cause.status(),
                "signal": _signal(cause.code),
                "seconds": round(cause.after_s, 3),
            }
            for cause in result.restarted
        ],
        "ranks": [as_json(exited) for exited in sorted(result.exits)],
    }
    if cause := result.cause:
        record.update(cause=cause.kind, why=cause.in_words, oom=cause.oom or None)
        if cause.kind == "signal":
            record["signal"] = _signal(cause.code)
        elif cause.kind == "failure":
            record["first_failure"] = cause.rank
    for rank, code in elsewhere:
        status = None if code is None else failures.exit_status(code)
        record["ranks"].append({"rank": rank, "status": status, "signal": _signal(code or 0)})
    record["ranks"].sort(key=lambda exited: exited["rank"])
    return _write(record, launch.result or "", "--result", indent=1)


def as_json(exited: failures.WorkerExit) -> dict[str, Any]:
    """The end of a rank, and its usage, as JSON; null where that is not known."""
    used = exited.used
    return {
        "rank": exited.rank,
        "local_rank": exited.local_rank,
        "pid": exited.pid,
        "status": failures.exit_status(exited.code),
        "signal": _signal(exited.code),
        "told": _signal(-exited.sent),
        "seconds": round(exited.life_s, 3),
        "user_seconds": round(used.ru_utime, 3) if used else None,
        "system_seconds": round(used.ru_stime, 3) if used else None,
        "peak_bytes": used.ru_maxrss * MAXRSS_BYTES if used else None,
        "involuntary_switches": used.ru_nivcsw if used else None,
        "major_faults": used.ru_majflt if used else None,
    }


def _signal(code: int) -> str | None:
    return failures.signal_name(-code) if code < 0 else None


def _write(record: dict[str, Any], path: str, name: str, indent: int | None = None) -> bool:
    """Write the file, whole or not at all; the result is whether it was written."""
    try:
        files.write(path, json.dumps(record, indent=indent) + "\n" * bool(indent))
    except OSError as error:
        say.say([f"cannot write {name} {path}: {error.strerror}; name another file"])
        return False
    return True

"""Write lines for the user to stderr: the launcher's own, notices, and fatal errors.

None waits long for a reader: the guard writes too, and must not be kept from its work.

A seccomp profile of a container (seccomp(2)), a sandbox such as gVisor or an old kernel refuses
single system calls: with EPERM, or with ENOSYS. Where that costs a feature, the launch continues
without it; else it ends with one line and EX_OSERR.
"""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Callable, Iterable
from contextlib import suppress

from spawnlaunch.base import errors, machine, records

PATIENCE_S = 2.0  # for each 4 KiB, while there is still work to do
LATE_S = 1.0  # poll returns so much too late only where this process could not run
PIPE_BUF = 4096  # a pipe that polls as writable takes so many bytes in one piece (pipe(7))

stream = [2]  # the descriptor to write to; another one where a caller wants nothing on stderr
JOB, NODE = "job", "node"  # scopes of notices
UNWRITTEN = "something could not be written"  # a key of machine.remembered, which a fork inherits

_SECCOMP = (
    "a container's seccomp profile may forbid it: docker run --security-opt seccomp=unconfined"
)
_DESCRIPTORS, _PROCESSES = "see ulimit -n", "see ulimit -u, and the pids limit of the cgroup"
HINTS = {
    errno.EPERM: _SECCOMP,
    errno.ENOSYS: _SECCOMP,
    errno.EMFILE: _DESCRIPTORS,
    errno.ENFILE: _DESCRIPTORS,
    errno.EAGAIN: _PROCESSES,
    errno.ENOMEM: _PROCESSES,
}
SEE_WHERE = "set SPAWNLAUNCH_DEBUG=1 to see where"


class Notice(records.NamedTuple):
    """A warning about a launch, which one process prints: of the whole job, or of each node."""

    scope: str  # JOB: rank 0 prints it; NODE: the first rank of the node
    text: str


def notices(scope: str, texts: Iterable[str]) -> tuple[Notice, ...]:
    """Notices of one scope."""
    return tuple(Notice(scope, text) for text in texts)


def say(lines: Iterable[str], patience_s: float = PATIENCE_S) -> bool:
    """Write the launcher's own lines, with its name in front; False: not read in time."""
    return write(worded(lines), patience_s)


def worded(lines: Iterable[str]) -> str:
    """The launcher's own lines, with its name in front, as one text."""
    return "".join(f"spawnlaunch: {errors.one_line(line)}\n" for line in lines)


def write(text: str, patience_s: float = PATIENCE_S) -> bool:
    """Write text to stderr; drop text that is not read in time, and return False then."""
    poller = machine.poll()
    poller.register(stream[0], select.POLLOUT)
    data, until = text.encode(errors="backslashreplace"), machine.running_s() + patience_s
    while data and (remaining_s := until - machine.running_s()) > 0:
        began, is_read = machine.monotonic(), True
        with suppress(OSError):  # the system refuses poll
            is_read = bool(poller.poll(remaining_s * 1000))
        passed_s = machine.monotonic() - began
        if passed_s > remaining_s + LATE_S:  # this process did not run, and perhaps no reader did
            machine.exclude(passed_s)
        try:
            if is_read:
                data = data[machine.write_now(stream[0], data[:PIPE_BUF]) :]
                until = machine.running_s() + patience_s
        except BlockingIOError:  # another process has filled the pipe since poll
            pass
        except OSError as error:
            if error.errno != errno.EPIPE:  # EPIPE: the reader has closed its end
                machine.remembered[UNWRITTEN] = True
            return True
    return not data


# Fatal errors: the line that a process prints, and the status with which it ends


def fatal(
    error: BaseException,
    where: str = "",
    prefix: str = "",
    report: Callable[[int, str], object] | None = None,
) -> int:
    """Print one line about a fatal error, in place of a traceback, and return the exit status.

    `report` passes status and words on to the launchers of other nodes.
    """
    line, status = describe_fatal(error, where)
    if os.environ.get("SPAWNLAUNCH_DEBUG") and status != errors.WRONG_USE:
        import traceback

        traceback.print_exception(error)
    say([f"error: {line}" if status == errors.WRONG_USE else prefix + line])
    if report:
        report(status, line)
    return status


def describe_fatal(error: BaseException, where: str = "") -> tuple[str, int]:
    """Return the line and the exit status.

    A UsageError is the user's, an OSError the system's, any other spawnlaunch's fault.
    """
    if isinstance(error, errors.UsageError):
        return str(error), errors.WRONG_USE
    if isinstance(error, OSError):
        return describe_refusal(error), os.EX_OSERR
    return (
        f"internal error{where}: {type(error).__name__}: {error}; this is a fault of spawnlaunch, "
        f"{SEE_WHERE}"
    ), os.EX_SOFTWARE


def describe_refusal(error: OSError) -> str:
    """Return which call the system refuses, why, and what to do; without errno, its own words."""
    if error.errno is None:
        return str(error)
    call, file = _refused_call(error), str(error.filename or "")
    reason = f"{error.strerror or error}{call and file and f': {file}'}"
    hint = HINTS.get(error.errno, SEE_WHERE)
    return f"the system refuses {call or file or 'a call'}: {reason}; {hint}"


def _refused_call(error: OSError) -> str:
    """The name of the function that raised the error, by the last line of its traceback.

    "": the line is a `raise`, or the source cannot be read, or it has changed.
    """
    last = error.__traceback__
    if last is None:
        return ""
    while last.tb_next:
        last = last.tb_next
    code, number, begin = last.tb_frame.f_code, last.tb_lineno, 0
    if hasattr(code, "co_positions"):  # Python 3.11
        number, _, begin, _ = [*code.co_positions()][last.tb_lasti // 2]
    try:
        line = machine.content(code.co_filename).splitlines()[number - 1][begin:]
    except (OSError, IndexError):
        return ""
    words = line.decode(errors="replace").partition("(")[0].split()
    called = words[-1].rpartition(".")[2] if words and words[0] != "raise" else ""
    return called if called in (*code.co_names, *code.co_varnames) else ""

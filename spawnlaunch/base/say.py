"""Write lines for the user to stderr, without waiting long for a reader; notices and their scopes.

The guard writes too, and a pipe without a reader must not keep it from its work.
"""

from __future__ import annotations

import errno
import select
from collections.abc import Iterable
from contextlib import suppress

from spawnlaunch.base import errors, machine, records

PATIENCE_S = 2.0  # for each 4 KiB, while there is still work to do
LATE_S = 1.0  # poll returns so much too late only where this process could not run
PIPE_BUF = 4096  # a pipe that polls as writable takes so many bytes in one piece (pipe(7))

stream = [2]  # the descriptor to write to; another one where a caller wants nothing on stderr
JOB, NODE = "job", "node"  # scopes of notices
UNWRITTEN = "something could not be written"  # a key of machine.remembered, which a fork inherits


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
    while data and (left_s := until - machine.running_s()) > 0:
        began, is_read = machine.monotonic(), True
        with suppress(OSError):  # the system refuses poll
            is_read = bool(poller.poll(left_s * 1000))
        passed_s = machine.monotonic() - began
        if passed_s > left_s + LATE_S:  # this process did not run, and perhaps no reader did
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

"""Speak to the user on stderr, without ever waiting long for a reader.

The guard speaks too, and a pipe that nobody reads must not keep it from its work.
"""

from __future__ import annotations

import errno
import select
from contextlib import suppress

from spawnlaunch import errors, machine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

PATIENCE_S = 2.0  # for each 4 KiB, while there is still work to do
LATE_S = 1.0  # by which poll is late only where this process could not run
PIPE_BUF = 4096  # a pipe that polls as writable takes this much at once, untorn (pipe(7))

stream = [2]  # our descriptor; another one where a caller asks that we say nothing aloud
UNWRITTEN = "something could not be written"  # that is remembered; a forked guard knows it


def say(lines: Iterable[str], patience_s: float = PATIENCE_S) -> bool:
    """Write lines of our own, each with our name in front; False: nobody has read them in time."""
    return write(worded(lines), patience_s)


def worded(lines: Iterable[str]) -> str:
    """Lines of our own, as they are written."""
    return "".join(f"spawnlaunch: {errors.one_line(line)}\n" for line in lines)


def write(text: str, patience_s: float = PATIENCE_S) -> bool:
    """Write text to stderr; what nobody reads in time is dropped: False."""
    poller = machine.poll()
    poller.register(stream[0], select.POLLOUT)
    data = text.encode(errors="backslashreplace")
    while data:
        began, is_read = machine.monotonic(), True
        with suppress(OSError):  # poll is refused
            is_read = bool(poller.poll(patience_s * 1000))
        if not is_read and machine.monotonic() - began < patience_s + LATE_S:
            return False
        if not is_read:
            continue  # we did not run, nor did the reader, perhaps
        try:
            data = data[machine.write(stream[0], data[:PIPE_BUF]) :]
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EAGAIN):  # else nobody reads it
                machine.remembered[UNWRITTEN] = True
            return error.errno != errno.EAGAIN
    return True

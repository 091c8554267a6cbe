"""Speak to the user on stderr, without ever waiting long for a reader.

The guard speaks too, and a pipe that nobody reads must not keep it from its work.
"""

from __future__ import annotations

import errno
import select
from collections.abc import Iterable
from contextlib import suppress

from spawnlaunch.base import errors, machine

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
    data, left_s = text.encode(errors="backslashreplace"), patience_s
    while data and left_s > 0:
        began, is_read = machine.monotonic(), True
        with suppress(OSError):  # poll is refused
            is_read = bool(poller.poll(left_s * 1000))
        try:
            if is_read:
                data, left_s = data[machine.write_now(stream[0], data[:PIPE_BUF]) :], patience_s
                continue
        except BlockingIOError:  # another one was quicker
            pass
        except OSError as error:
            if error.errno != errno.EPIPE:  # else nobody reads it
                machine.remembered[UNWRITTEN] = True
            return True
        passed_s = machine.monotonic() - began
        if passed_s < left_s + LATE_S:  # else we did not run, nor did the reader, perhaps
            left_s -= passed_s
    return not data

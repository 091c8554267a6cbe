"""Speak to the user on stderr, without ever waiting long for a reader.

The guard speaks too, and a pipe that nobody reads must not keep it from its work.
"""

from __future__ import annotations

import errno
import os
import select

from spawnlaunch.errors import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

PATIENCE_S = 2.0  # for each 4 KiB, while there is still work to do
PIPE_BUF = 4096  # a pipe that polls as writable takes this much at once, untorn (pipe(7))

failures: list[int] = []  # error numbers of what could not be written; a forked guard knows them


def say(lines: Iterable[str], patience_s: float = PATIENCE_S) -> None:
    """Write lines of our own, each with our name in front."""
    write(worded(lines), patience_s)


def worded(lines: Iterable[str]) -> str:
    """Lines of our own, as they are written."""
    return "".join(f"spawnlaunch: {one_line(line)}\n" for line in lines)


def write(text: str, patience_s: float = PATIENCE_S) -> None:
    """Write text to stderr; what nobody reads in time is dropped."""
    poller = select.poll()
    poller.register(2, select.POLLOUT)
    data = text.encode(errors="backslashreplace")
    while data:
        try:
            ready = poller.poll(patience_s * 1000)
            if not ready:
                return
            data = data[os.write(2, data[:PIPE_BUF]) :]
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EAGAIN):  # else nobody reads it
                failures.append(error.errno or 0)
            return

"""The time at which a rank last wrote something, seen from outside.

A guard publishes it for the streams that come through its pipes (`Output.publish`). For
other streams it is the time of change of the rank's stdout or stderr: of a file, a terminal, and,
where the kernel keeps it, a pipe. Ranks that share a stream, as the terminal of torchrun, have the
same time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from stat import S_ISCHR, S_ISFIFO, S_ISREG

from spawnlaunch import output
from spawnlaunch.watch import find, progress

NAME = f"/memfd:{output.TIMES} (deleted)"  # of a guard, as readlink(2) has it


class OutputTimes:
    """The times at which ranks last wrote."""

    def __init__(self) -> None:
        self._files: dict[int, str | None] = {}  # by a guard's pid, the file in which it tells
        self._are_pipes_dated = _are_pipes_dated()

    def set_ranks(self, ranks: Iterable[find.Rank]) -> None:
        """Look for the guards of these ranks, which are all that live."""
        guards = {rank.parent for rank in ranks}
        self._files = {pid: self._files.get(pid) or progress.find_open(pid, NAME) for pid in guards}

    def output_at(self, rank: find.Rank) -> float | None:
        """The time of the rank's last output: monotonic clock, seconds; None: not known."""
        path = self._files.get(rank.parent)
        last = _published_at(path, rank.pid) if path else None
        if last is not None:
            return last
        times = [self._changed(f"/proc/{rank.pid}/fd/{fd}") for fd in (1, 2)]
        known = [each for each in times if each is not None]
        return time.monotonic() - max(0.0, time.time() - max(known)) if known else None

    def _changed(self, path: str) -> float | None:
        """The time of the last write to a stream, in seconds since 1970; None: not known."""
        try:
            status = os.stat(path)
        except OSError:
            return None
        mode = status.st_mode
        is_terminal = S_ISCHR(mode) and os.major(status.st_rdev) in range(136, 144)  # pts(4)
        if S_ISREG(mode) or is_terminal or (S_ISFIFO(mode) and self._are_pipes_dated):
            return status.st_mtime
        return None


def _are_pipes_dated() -> bool:
    """Whether a pipe changes its time when it is written to: some kernels save that effort."""
    inlet, outlet = os.pipe()
    try:
        before = os.fstat(outlet).st_mtime_ns
        time.sleep(0.02)  # a tick of the kernel's clock and more
        os.write(outlet, b".")
        return os.fstat(outlet).st_mtime_ns != before
    finally:
        os.close(inlet)
        os.close(outlet)


def _published_at(path: str, pid: int) -> float | None:
    """The time of a worker's last output, as its guard publishes it: monotonic clock, seconds."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return None
    for at in range(0, len(content), output.SLOT_BYTES):
        words = content[at : at + output.SLOT_BYTES].split()
        if len(words) == 3 and words[0] == str(pid).encode():
            return float(words[1])
    return None

"""The progress of a rank of the bundled loop, which train/progress.py publishes.

The file is a memfd (memfd_create(2)) of the rank's, found by its name among its descriptors.
"""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

NAME = "/memfd:spawnlaunch-progress (deleted)"  # as readlink(2) of /proc/PID/fd/N has it
PHASES = {"d": "data", "c": "compute", "w": "wait", "v": "validate", "s": "save"}
MOST_BYTES = 4096
LOOKS, RARELY = 30, 8  # without finding one; then it may be another program: each 8th time


class Progress(NamedTuple):
    """A rank's last figures. Seconds are per step, means since the last line of its log."""

    phase: str  # data, compute, wait, validate, save, or "" between them
    step: int
    steps: int | None
    at: float | None  # the end of that step, monotonic clock, seconds
    first_collective: float | None  # the end of the first one, seconds since 1970
    loss: float | None
    rate: float | None  # samples per second, of all ranks
    data_s: float | None
    compute_s: float | None
    wait_s: float | None


class Reader:
    """A reader of one rank's progress."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._path: str | None = None
        self._looks = 0
        self._last: Progress | None = None

    def read(self) -> Progress | None:
        """The rank's last progress; None where it publishes none."""
        if self._path is None:
            self._looks += 1
            if self._looks < LOOKS or self._looks % RARELY == 0:
                self._path = find_open(self._pid, NAME)
            if self._path is None:
                return None
        try:
            with open(self._path, "rb") as file:
                text = file.read(MOST_BYTES).decode(errors="replace")
            self._last = _parsed(text) or self._last  # else it was being written
        except OSError:
            self._path = None
        return self._last


def find_open(pid: int, name: str) -> str | None:
    """The path of a process's open file with this name by readlink(2); None: it has none."""
    directory = f"/proc/{pid}/fd"
    try:
        for fd in os.listdir(directory):
            if os.readlink(f"{directory}/{fd}") == name:
                return f"{directory}/{fd}"
    except OSError:  # it has ended, or is another user's
        pass
    return None


def _parsed(text: str) -> Progress | None:
    """The progress in a text: a letter for the phase, then JSON, then blanks."""
    try:
        read: dict[str, Any] = json.loads(text[1:].rstrip("\0 "))
        fields: dict[str, Any] = {name: read.get(name) for name in Progress._fields[1:]}
        fields["step"] = fields["step"] or 0
        return Progress(phase=PHASES.get(text[:1], ""), **fields)
    except (ValueError, TypeError):
        return None

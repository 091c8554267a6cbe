"""Publish this rank's progress to `spawnlaunch top` and --record, in shared memory.

It is in a file without a name in memory (memfd_create(2)) that is found among this process's
descriptors: a letter for what the rank does now, and JSON of its last step. To change the letter
takes less than a microsecond. Where there is no such call, as on macOS, nothing is published.

    {"step": 12, "steps": 350, "at": 812.4, "first_collective": 1760000000.0, "loss": 2.31,
     "rate": 151.2, "data_s": 0.0007, "compute_s": 0.1135, "wait_s": 0.0146}
"""

from __future__ import annotations

import json
import mmap
import os
import time
from typing import Any

NAME = "spawnlaunch-progress"
BYTES = 512
DATA, COMPUTE, WAIT, VALIDATE, SAVE, NOTHING = b"d", b"c", b"w", b"v", b"s", b" "


class Progress:
    """The published progress of one run of the loop in this process."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._memory: mmap.mmap | None = None
        try:
            self._file = os.memfd_create(NAME)  # kept open: it is found by its descriptor
            os.ftruncate(self._file, BYTES)
            self._memory = mmap.mmap(self._file, BYTES)
        except (AttributeError, OSError):
            return
        self._memory[:] = b" {}".ljust(BYTES)

    def phase(self, letter: bytes) -> None:
        """Publish the letter of what this rank does from now on."""
        if self._memory is not None:
            self._memory[0:1] = letter

    def publish(self, **values: Any) -> None:
        """Change published values of the last step."""
        self._values.update(values)
        if self._memory is not None:
            text = json.dumps(self._values).encode()
            self._memory[1:] = text.ljust(BYTES - 1)

    def step(self, step: int, steps: int) -> None:
        """Publish the end of a step."""
        if "first_collective" not in self._values:
            self._values["first_collective"] = time.time()
        self.publish(step=step, steps=steps, at=time.monotonic())

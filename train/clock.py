"""Where the time of a step goes: waiting for data, computing, waiting for the other ranks.

Communication that runs beside the backward pass costs nothing. What costs is the time from the
moment the last gradients were handed to the network until they are back, and that is what counts
as waiting here. On a CUDA or ROCm device the marks are events in its queue, so that looking at the
clock makes nobody wait; they are read when a line is logged.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import torch


class Split(NamedTuple):
    """Mean seconds per step of this rank."""

    data: float
    compute: float
    wait: float


class Clock:
    """Marks of the steps since the last ``split``."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.on_gpu = device.type == "cuda"
        self.data_s = 0.0
        self.steps: list[tuple[Any, Any, Any, Any]] = []
        self.begun = self.last_sent = self.done = self.back = self._mark()
        self.asked_at = time.perf_counter()

    def _mark(self) -> Any:
        if not self.on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def start(self) -> None:
        """A step begins, and asks for its first batch."""
        self.begun = self._mark()
        self.asked_at = time.perf_counter()
        self.last_sent = None

    def have_data(self) -> None:
        """A batch is there."""
        self.data_s += time.perf_counter() - self.asked_at

    def sent(self) -> None:
        """A bucket of gradients goes to the network."""
        self.last_sent = self._mark()

    def computed(self) -> None:
        """A backward pass is over; the next batch of the step is asked for."""
        self.asked_at = time.perf_counter()
        self.done = self._mark()

    def received(self) -> None:
        """Everything from the other ranks is here."""
        self.back = self._mark()

    def stop(self) -> None:
        """The step is over."""
        self.steps.append((self.begun, self.last_sent or self.done, self.back, self._mark()))

    def wait_for_device(self) -> None:
        """Until what was queued there is done."""
        if self.on_gpu:
            torch.cuda.synchronize()

    def split(self) -> Split:
        """The means since the last call; waits for the device."""
        count = max(1, len(self.steps))
        self.wait_for_device()
        wait = sum(self._between(sent, back) for _, sent, back, _ in self.steps)
        whole = sum(self._between(begun, end) for begun, _, _, end in self.steps)
        # The device's queue may be busy while Python waits for data, so that they can overlap.
        compute = max(0.0, whole - wait - self.data_s)
        split = Split(self.data_s / count, compute / count, wait / count)
        self.steps, self.data_s = [], 0.0
        return split

    def _between(self, first: Any, second: Any) -> float:
        if self.on_gpu:
            return float(first.elapsed_time(second)) / 1e3
        return float(second - first)

"""Looks at what each step left, without making Python wait for the device.

On a CPU the numbers are there. A CUDA or ROCm device is still computing them, so they are copied
aside and read a few steps later; all ranks read the numbers of the same step at the same time,
which is how they agree to stop, and on what.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .distributed import from_every_rank
from .errors import StoppedError
from .learner import Step
from .order import Order

LAG = 2  # steps that the device may be behind
SHOWN = 64  # samples named in a message


class _Seen(NamedTuple):
    step: int
    first: int  # position in the stream
    totals: Tensor
    losses: Tensor
    arrived: Any  # a CUDA event, or None


class Watch:
    """The steps that nobody has looked at yet."""

    def __init__(self, order: Order, device: torch.device) -> None:
        self.order = order
        self.on_gpu = device.type == "cuda"
        self.unseen: deque[_Seen] = deque()

    def look(self, step: int, first: int, result: Step) -> bool:
        """Whether the ranks agreed to stop; ``first`` is where in the stream the step began.

        Raises StoppedError on every rank when the loss of a step was not finite on one of them.
        """
        totals, arrived = result.totals, None
        if self.on_gpu:
            totals = torch.empty_like(totals, device="cpu", pin_memory=True)
            totals.copy_(result.totals, non_blocking=True)
            arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            arrived.record()
        self.unseen.append(_Seen(step, first, totals, result.losses, arrived))
        stop = False
        while len(self.unseen) > (LAG if self.on_gpu else 0):
            stop |= self._see(self.unseen.popleft())
        return stop

    def look_at_all(self) -> None:
        """Wait for the device and look at every step; raises as ``look`` does."""
        while self.unseen:
            self._see(self.unseen.popleft())

    def _see(self, seen: _Seen) -> bool:
        if seen.arrived is not None:
            seen.arrived.synchronize()
        loss, _, stops = seen.totals.tolist()
        if not math.isfinite(loss):
            culprits = from_every_rank(self._culprits(seen))
            raise StoppedError("; ".join(filter(None, culprits)) or f"step {seen.step}: {loss}")
        return bool(stops)

    def _culprits(self, seen: _Seen) -> str:
        """What this rank has to say about a loss that is not finite; nothing if its own is."""
        for micro, loss in enumerate(seen.losses.tolist()):
            if not math.isfinite(loss):
                samples = self.order.indices(self.order.positions(seen.first, micro))
                more = f" and {len(samples) - SHOWN} more" if len(samples) > SHOWN else ""
                return (
                    f"rank {self.order.rank}: the loss of step {seen.step} is {loss}, on the "
                    f"training samples {', '.join(map(str, samples[:SHOWN]))}{more}; look at them, "
                    "or type a lower --lr or a longer --warmup"
                )
        return ""

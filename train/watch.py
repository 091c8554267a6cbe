"""Stop a run in which a loss or a gradient is not finite."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .config import Config
from .distributed import from_every_rank
from .errors import StoppedError
from .log import Step
from .order import Order

# The scaler of half precision halves its scale after each step that is not finite, and leaves that
# step out, until the scale fits. After this many such steps in a row no scale helps.
HALVINGS = 32
LAG = 2  # steps that the device may be behind
SHOWN = 64  # samples named in a message


class _Unseen(NamedTuple):
    step: int
    first: int  # position in the stream
    totals: Tensor
    losses: Tensor
    arrived: Any  # a CUDA event, or None


class Watch:
    """Checks that losses and gradients are finite, on a device some steps later."""

    def __init__(self, order: Order, device: torch.device, config: Config) -> None:
        self.order = order
        self.on_device = device.type != "cpu"
        self.allowed = HALVINGS if config.precision == "fp16" else 0
        self.in_a_row = 0  # steps that were not finite
        self.unseen: deque[_Unseen] = deque()

    def look(self, step: int, first: int, result: Step) -> bool:
        """Check a step from ``first`` of the stream on; return whether the ranks agreed to stop.

        Raises StoppedError on every rank when the loss of a step is not finite on one of them, or
        the gradient. On a device it checks an earlier step than this one.
        """
        totals, arrived = result.totals, None
        if self.on_device:
            totals = torch.empty_like(totals, device="cpu", pin_memory=True)
            totals.copy_(result.totals, non_blocking=True)
            arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            arrived.record()
        self.unseen.append(_Unseen(step, first, totals, result.losses, arrived))
        stop = False
        while len(self.unseen) > (LAG if self.on_device else 0):
            stop |= self._see(self.unseen.popleft())
        return stop

    def look_at_all(self) -> None:
        """Wait for the device and check all steps that are left; raises as ``look`` does."""
        while self.unseen:
            self._see(self.unseen.popleft())

    def _see(self, checked: _Unseen) -> bool:
        if checked.arrived is not None:
            checked.arrived.synchronize()
        loss, _, stops, norm = checked.totals.tolist()
        if math.isfinite(loss) and math.isfinite(norm):
            self.in_a_row = 0
            return bool(stops)
        self.in_a_row += 1
        if self.in_a_row > self.allowed:
            culprits = from_every_rank(self._culprits(checked))
            of_gradient = (
                f"the norm of the gradient of step {checked.step} is {norm}, and its loss is "
                "finite; nothing of the step is saved; use a lower --lr or a longer --warmup"
            )
            raise StoppedError("; ".join(filter(None, culprits)) or of_gradient)
        return bool(stops)

    def _culprits(self, checked: _Unseen) -> str:
        """An error that names the samples of this rank's loss if that is not finite; else ""."""
        for micro, loss in enumerate(checked.losses.tolist()):
            if not math.isfinite(loss):
                samples = self.order.batch(checked.first, micro).indices
                more = f" and {len(samples) - SHOWN} more" if len(samples) > SHOWN else ""
                return (
                    f"rank {self.order.rank}: the loss of step {checked.step} is {loss}, on the "
                    f"training samples {', '.join(map(str, samples[:SHOWN]))}{more}; look at them, "
                    "or use a lower --lr or a longer --warmup"
                )
        return ""

"""What a run tells: a bar for a person at a terminal, lines for a log, JSON for programs."""

from __future__ import annotations

import json
import math
import shutil
import time
from pathlib import Path
from typing import TextIO

import torch
from torch import Tensor

BAR_WIDTH = 24
REDRAW_S = 0.1


class Screen:
    """Lines on a stream; on a terminal also one line that is redrawn in place.

    Without a stream nothing is said, which is how every rank but 0 reports.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self.stream = stream
        self.tty = stream is not None and stream.isatty()
        self.note = ""
        self.drawn_at = 0.0

    def line(self, text: str) -> None:
        """A line that stays; on a terminal it takes the place of the bar."""
        if self.stream is None:
            return
        # A log in the C locale takes no "é", and a run should not end over that.
        encoding = self.stream.encoding or "ascii"
        text = text.encode(encoding, errors="replace").decode(encoding)
        clear = "\r\x1b[K" if self.tty else ""
        print(clear + text, file=self.stream, flush=True)

    def progress(self, step: int, steps: int, note: str = "") -> None:
        """Step ``step`` of ``steps`` is done; a log has a line for it only if there is a note."""
        if self.tty:
            self._draw(step, steps, note)
        elif note:
            self.line(f"step {step:>{len(str(steps))}}/{steps}  {note}")

    def _draw(self, step: int, steps: int, note: str) -> None:
        now = time.monotonic()
        if self.stream is None or (not note and now - self.drawn_at < REDRAW_S):
            return
        self.note, self.drawn_at = note or self.note, now
        bar = "#" * (BAR_WIDTH * step // steps)
        text = f"[{bar:<{BAR_WIDTH}}] step {step}/{steps}  {self.note}"
        # A line that wraps cannot be redrawn in place.
        columns = shutil.get_terminal_size().columns
        print("\r\x1b[K" + text[: columns - 1], end="", file=self.stream, flush=True)


class Metrics:
    """One JSON object a line, each appended in one write, so that a reader sees whole lines.

    Without a path nothing is written, which is how every rank but 0 keeps its metrics.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def write(self, **values: float | int) -> None:
        """Append the values; one that is not finite becomes null, for JSON knows no other way."""
        if self.path is None:
            return
        known = {name: value if math.isfinite(value) else None for name, value in values.items()}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(known) + "\n")


class Log:
    """What the loop says while it runs; ``unit`` is the loss's, ``global_batch`` counts samples."""

    def __init__(
        self, screen: Screen, metrics: Metrics, unit: str, steps: int, every: int, global_batch: int
    ) -> None:
        self.screen = screen
        self.metrics = metrics
        self.unit = unit
        self.steps = steps
        self.every = every
        self.global_batch = global_batch
        self.totals: list[Tensor] = []
        self.started = self.logged = time.perf_counter()

    def step(self, step: int, totals: Tensor, lr: float) -> None:
        """Note the global (loss sum, count) of a step, shape (2,); tell the mean when it is due.

        Until then the totals stay on the device: reading one makes the device wait for Python.
        """
        self.totals.append(totals)
        if step % self.every and step != self.steps:
            self.screen.progress(step, self.steps)
            return
        loss_sum, count = torch.stack(self.totals).sum(dim=0).tolist()
        loss, now = loss_sum / count, time.perf_counter()
        speed = len(self.totals) * self.global_batch / (now - self.logged)
        self.metrics.write(
            step=step,
            samples=step * self.global_batch,
            loss=loss,
            lr=lr,
            samples_per_second=round(speed, 1),
            seconds=round(now - self.started, 3),
        )
        note = f"loss {loss:.3f} {self.unit}  lr {lr:.1e}  {speed:.0f} samples/s"
        self.screen.progress(step, self.steps, note)
        self.totals, self.logged = [], now

    def validation(self, step: int, loss: float) -> None:
        """Tell the validation loss; the time it took is not counted as training time."""
        self.metrics.write(step=step, samples=step * self.global_batch, validation_loss=loss)
        if step < self.steps:
            self.screen.line(f"step {step}: validation loss {loss:.3f} {self.unit}")
        self.logged = time.perf_counter()

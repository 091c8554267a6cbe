"""What a run tells while it goes on, and at its end: on the screen, in files, and to trackers.

Communication that runs beside the backward pass costs nothing. What costs is the time from the
moment the last gradients were handed to the network until they are back, and that is what counts
as waiting here. On a CUDA or ROCm device the marks are events in its queue, so that looking at the
clock makes nobody wait; they are read when a line is logged.
"""

from __future__ import annotations

import json
import math
import socket
import time
from collections.abc import Mapping, Sequence
from operator import mul
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import files
from .distributed import from_every_rank
from .errors import StoppedError
from .progress import COMPUTE, DATA, NOTHING, WAIT, Progress
from .schedule import Position
from .screen import Screen
from .trackers import Tracker


class Split(NamedTuple):
    """Mean seconds per step of this rank."""

    data: float
    compute: float
    wait: float


class Step(NamedTuple):
    """What one step leaves to look at, all of it on the device.

    ``totals`` are of all ranks together: the sum of the losses, the count of terms, how many ranks
    want to stop; and behind these sums the norm of the gradient before it was clipped, so that all
    four come from the device at once. ``losses`` are this rank's sums, one per forward pass.
    """

    totals: Tensor
    losses: Tensor


class Clock:
    """Marks of the steps since the last ``split``."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.on_device = device.type != "cpu"
        self.progress = Progress()
        self.data_s = 0.0
        self.steps: list[tuple[Any, Any, Any, Any]] = []
        self.begun = self.last_sent = self.done = self.back = self._mark()
        self.asked_at = time.perf_counter()
        self.all_sent = False

    def _mark(self) -> Any:
        if not self.on_device:
            return time.perf_counter()
        event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def start(self) -> None:
        """A step begins, and asks for its first batch."""
        self.begun = self._mark()
        self.asked_at = time.perf_counter()
        self.last_sent, self.all_sent = None, False
        self.progress.phase(DATA)

    def have_data(self) -> None:
        """A batch is there."""
        self.data_s += time.perf_counter() - self.asked_at
        self.progress.phase(COMPUTE)

    def sent(self, last: bool) -> None:
        """A bucket of gradients goes to the network."""
        if last:
            self.last_sent, self.all_sent = self._mark(), True
        self.progress.phase(WAIT)

    def computed(self, last: bool) -> None:
        """A backward pass is over; unless it was the last of the step, a batch is asked for."""
        self.progress.phase(WAIT if last else DATA)
        self.asked_at = time.perf_counter()
        if last:
            self.done = self._mark()

    def received(self) -> None:
        """Everything from the other ranks is here."""
        self.back = self._mark()
        self.progress.phase(NOTHING)

    def stop(self) -> None:
        """The step is over."""
        self.steps.append((self.begun, self.last_sent or self.done, self.back, self._mark()))

    def wait_for_device(self) -> None:
        """Until what was queued there is done."""
        if self.on_device:
            torch.cuda.synchronize(self.device)

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
        if self.on_device:
            return float(first.elapsed_time(second)) / 1e3
        return float(second - first)


class Metrics:
    """One JSON object a line, each appended in one write, so that a reader sees whole lines.

    Without a path nothing is written, which is how every rank but 0 keeps its metrics.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.problem: StoppedError | None = None  # of which the other ranks have to learn

    def write(self, values: Mapping[str, Any]) -> None:
        """Append the values; a number that is not finite becomes null, as JSON has no other way.

        What went wrong is the ``problem``, for all ranks to stop together.
        """
        if self.path is None:
            return
        line = json.dumps({name: known(value) for name, value in values.items()}) + "\n"
        try:
            with files.open_text(self.path, "a") as file:
                file.write(line)
        except OSError as error:
            self.problem = StoppedError(
                f"cannot write to {self.path}: {error.strerror}; {files.advice(error)}, and type "
                "--resume auto"
            )


def known(value: Any) -> Any:
    """The value, or None for a number that JSON has no way to write."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


MIB = 1 << 20
# What lines of metrics have besides the report of a task, and throughput in its own terms.
OWN = {f"{part}_s" for part in Split._fields}.union(
    ("step", "samples", "loss", "lr", "gradient_norm", "validation_loss", "seconds"),
    ("samples_per_second", "slowest"),
)


class Sizes(NamedTuple):
    """What the log has to know of a run."""

    steps: int
    unit: str  # of the loss, with a space before it
    counted: str  # what the count of a loss counts; "" if the task does not say


class Log:
    """Numbers of the steps since the last line, and where they go."""

    def __init__(
        self,
        screen: Screen,
        metrics: Metrics,
        trackers: Sequence[Tracker],
        sizes: Sizes,
        clock: Clock,
    ) -> None:
        self.screen = screen
        self.metrics = metrics
        self.trackers = trackers
        self.sizes = sizes
        self.clock = clock
        self.hosts = from_every_rank(socket.gethostname())
        self.window = torch.zeros(2, dtype=torch.float64, device=clock.device)
        self.timed = self.samples = 0  # steps and samples since the last line
        self.timed_s = self.step_s = 0.0
        self.splits: list[tuple[int, list[Split]]] = []  # one, the mean over all steps so far

    def add(self, at: Position, result: Step, took_s: float) -> None:
        """Add up the global loss sum and count of a step, unless the scaler left it out.

        They stay on the device: reading one makes the device wait for Python.
        """
        finite = torch.isfinite(result.totals[3] + result.totals[0])
        self.window += torch.where(finite, result.totals[:2], 0.0)
        self.timed += 1
        self.samples += at.taken
        self.timed_s += took_s
        self.clock.progress.step(at.step, self.sizes.steps)

    def tell(self, at: Position, result: Step, lr: float) -> None:
        """Tell the means over the steps since the last line, and begin anew."""
        loss_sum, count, norm = torch.cat((self.window, result.totals[3:])).tolist()
        own = self.clock.split()
        self.clock.progress.phase(WAIT)
        told = from_every_rank((own, str(self.metrics.problem or "")))
        self.clock.progress.phase(NOTHING)
        splits = [split for split, _ in told]
        if problem := told[0][1]:  # rank 0 alone writes
            raise StoppedError(problem)
        windows = [*self.splits, (self.timed, splits)]
        self.splits = [(sum(steps for steps, _ in windows), mean_splits(windows))]
        speed = self.samples / self.timed_s
        self.step_s = self.timed_s / self.timed
        numbers: dict[str, Any] = {
            "step": at.step,
            "samples": at.samples,
            "loss": loss_sum / count if count else math.nan,
            "lr": lr,
            "gradient_norm": norm,
            "samples_per_second": round(speed, 1),
            **self._rates(speed, count),
            "seconds": round(at.seconds, 3),
            **spread(splits),
            "slowest": f"rank {slowest(splits)} on {self.hosts[slowest(splits)]}",
        }
        parts = {f"{name}_s": round(value, 6) for name, value in own._asdict().items()}
        rate = numbers["samples_per_second"]
        self.clock.progress.tell(loss=known(numbers["loss"]), rate=rate, **parts)
        self.metrics.write(numbers)
        for tracker in self.trackers:
            tracker.log(at.step, numbers, own._asdict())
        self.screen.progress(at.step, self.sizes.steps, self._note(numbers))
        self.window.zero_()
        self.timed, self.samples, self.timed_s = 0, 0, 0.0

    def _rates(self, samples_per_s: float, count: float) -> dict[str, float]:
        """Throughput in the task's own terms, and in operations where their number is known."""
        rates = {}
        if self.sizes.counted:
            each = count / self.samples
            rates[f"{self.sizes.counted}_per_second"] = round(each * samples_per_s, 1)
        return rates

    def _note(self, numbers: Mapping[str, Any]) -> str:
        note = f"loss {numbers['loss']:.3f}{self.sizes.unit}  lr {numbers['lr']:.1e}"
        note += f"  norm {numbers['gradient_norm']:.2g}"
        note += f"  {numbers['samples_per_second']:.0f} samples/s"
        if rate := numbers.get(f"{self.sizes.counted}_per_second"):
            note += f"  {rate:,.0f} {self.sizes.counted}/s"
        if (left := self.sizes.steps - numbers["step"]) > 0:
            note += f"  {in_words(left * self.step_s)} left"
        return note

    def validation(self, at: Position, loss: float, report: Mapping[str, float]) -> None:
        """Tell the validation loss and what the task measured."""
        numbers = {"step": at.step, "samples": at.samples, "validation_loss": loss, **report}
        self.metrics.write(numbers)
        for tracker in self.trackers:
            tracker.log(at.step, numbers, {})
        said = "".join(f"  {name} {value:.4f}" for name, value in brief(report).items())
        if at.step < self.sizes.steps or said:
            text = f"step {at.step}: validation loss {loss:.3f}{self.sizes.unit}{said}"
            self.screen.line(text)

    def summary(self, peaks: list[int]) -> None:
        """The mean step in parts, and ``peaks``, the most memory of each rank in bytes."""
        self.screen.close()
        if self.splits:
            self.screen.line(describe(mean_splits(self.splits), self.hosts))
        rank = peaks.index(max(peaks))
        self.screen.line(f"peak memory {peaks[rank] / MIB:,.0f} MiB, on rank {rank}")

    def state(self) -> dict[str, Any]:
        """What a resumed run needs for the same next line."""
        counts = {"timed": self.timed, "samples": self.samples, "timed_s": self.timed_s}
        return {"window": self.window.cpu().clone(), **counts}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state`` returned."""
        self.window.copy_(state["window"])
        self.timed, self.samples = state["timed"], state["samples"]
        self.timed_s = state["timed_s"]


def in_words(seconds: float) -> str:
    """A time to wait for, such as 45s, 12m and 3h05m."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 1:
        return f"{rest}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m"


def brief(report: Mapping[str, float]) -> dict[str, float]:
    """The measures that fit on a line: those of single classes have a slash in their names."""
    return {name: value for name, value in report.items() if "/" not in name}


def spread(splits: list[Split]) -> dict[str, Any]:
    """Minimum, median and maximum over the ranks of each part of a step."""
    parts: dict[str, Any] = {}
    for name in Split._fields:
        values = [getattr(split, name) for split in splits]
        parts[f"{name}_s"] = [round(f(values), 6) for f in (min, median, max)]
    return parts


def mean_splits(windows: list[tuple[int, list[Split]]]) -> list[Split]:
    """The mean of each rank over windows of different numbers of steps."""
    steps = sum(count for count, _ in windows)
    per_rank = zip(*(splits for _, splits in windows), strict=True)
    counts = [count for count, _ in windows]
    return [
        Split(*(sum(map(mul, counts, part)) / steps for part in zip(*splits, strict=True)))
        for splits in per_rank
    ]


def slowest(splits: list[Split]) -> int:
    """The rank that kept the others waiting: it had most to do itself."""
    busy = [split.data + split.compute for split in splits]
    return busy.index(max(busy))


def describe(splits: list[Split], hosts: list[str]) -> str:
    """The parts of a mean step as one line, in milliseconds."""
    names = ("data", "forward and backward", "waiting for ranks")
    parts = []
    for name, field in zip(names, Split._fields, strict=True):
        ms = [1e3 * getattr(split, field) for split in splits]
        parts.append(f"{name} {median(ms):.1f} ({min(ms):.1f} to {max(ms):.1f})")
    rank = slowest(splits)
    return f"a step in ms: {', '.join(parts)}; slowest: rank {rank} on {hosts[rank]}"

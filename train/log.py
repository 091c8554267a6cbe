"""Report a run's numbers on the screen and in files, on the way and at its end.

Communication that runs beside the backward pass costs nothing. The time from the moment the last
gradients were handed to the network until they are back does cost, and counts as waiting here. On a
CUDA or ROCm device the marks are events in its queue, so that no mark makes Python wait; they are
read when a line is logged.
"""

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .config import Config
from .distributed import from_every_rank
from .ending import block_signals_in_children
from .errors import StoppedError, advice, needed
from .progress import COMPUTE, DATA, NOTHING, WAIT, Progress
from .schedule import Position
from .screen import Screen
from .task import Task, unit_of

METRICS = "metrics.jsonl"


class Split(NamedTuple):
    """Mean seconds per step of this rank."""

    data: float
    compute: float
    wait: float


class Step(NamedTuple):
    """The results of one step, all of them on the device.

    ``totals`` are of all ranks together: the sum of the losses, the count of terms, how many ranks
    want to stop; and after these sums the norm of the gradient before it was clipped, so that all
    four come from the device at once. ``losses`` are this rank's sums, one per forward pass.
    """

    totals: Tensor
    losses: Tensor

    @property
    def loss_and_count(self) -> Tensor:
        return self.totals[:2]

    @property
    def gradient_norm(self) -> Tensor:
        return self.totals[3]


class Clock:
    """Marks the times at which the parts of a step begin and end, since the last ``split``."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.on_device = device.type != "cpu"
        self.progress = Progress()
        self.data_s = 0.0
        self.steps: list[tuple[Any, Any, Any, Any]] = []
        self.all_sent = False

    def _mark(self) -> Any:
        if not self.on_device:
            return time.perf_counter()
        event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def start(self) -> None:
        """Mark the start of a step, which waits for its first batch."""
        self.begun, self.last_sent, self.all_sent = self._mark(), None, False
        self.computed(last=False)

    def have_data(self) -> None:
        """Mark the arrival of a batch."""
        self.data_s += time.perf_counter() - self.requested_at
        self.progress.phase(COMPUTE)

    def sent(self, last: bool) -> None:
        """Mark that a bucket of gradients goes to the network, perhaps the step's last."""
        if last:
            self.last_sent, self.all_sent = self._mark(), True
        self.progress.phase(WAIT)

    def computed(self, last: bool) -> None:
        """Mark the end of a backward pass; unless it was the step's last, a batch is read next."""
        self.progress.phase(WAIT if last else DATA)
        self.requested_at = time.perf_counter()
        if last and not self.all_sent:
            self.last_sent = self._mark()

    def received(self) -> None:
        """Mark that everything from the other ranks has arrived."""
        self.back = self._mark()
        self.progress.phase(NOTHING)

    def stop(self) -> None:
        """Mark the end of a step."""
        self.steps.append((self.begun, self.last_sent, self.back, self._mark()))

    def wait_for_device(self) -> None:
        """Wait until the device has done all that was queued."""
        if self.on_device:
            torch.cuda.synchronize(self.device)

    def split(self) -> Split:
        """Return the means over the steps since the last call; waits for the device."""
        self.wait_for_device()
        count = max(1, len(self.steps))
        wait = sum(self._between(sent, back) for _, sent, back, _ in self.steps)
        whole = sum(self._between(begun, end) for begun, _, _, end in self.steps)
        # The device's queue may be busy while Python waits for data, so that they can overlap.
        compute = max(0.0, whole - wait - self.data_s)
        split = Split(self.data_s / count, compute / count, wait / count)
        self.steps, self.data_s = [], 0.0
        return split

    def _between(self, first: Any, second: Any) -> float:
        return float(first.elapsed_time(second) / 1e3 if self.on_device else second - first)


class Metrics:
    """Appends lines of JSON to a file, each in one write, so that a reader sees whole lines.

    With ``events``, a SummaryWriter of TensorBoard, the numbers go there too, and with a ``run`` of
    Weights & Biases to that. Without a path, as on every rank but 0, no file is written.
    """

    def __init__(self, path: Path | None, events: Any = None, run: Any = None) -> None:
        self.path, self.events, self.run = path, events, run
        self.problem: StoppedError | None = None  # sent to all ranks by ``write_means``

    def write(self, values: Mapping[str, Any], parts: Mapping[str, float] | None = None) -> None:
        """Append the values; a number that is not finite becomes null, as JSON has no other way.

        ``parts`` of a step are this rank's own, for its ``run``. An error becomes the ``problem``,
        on which all ranks stop together.
        """
        scalars = {name: value for name, value in values.items() if isinstance(value, float)}
        if self.run is not None:
            self.run.log({**scalars, **(parts or {})}, step=values["step"])
        if self.path is None:
            return
        line = json.dumps({name: known(value) for name, value in values.items()}) + "\n"
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:
            self.problem = StoppedError(
                f"cannot write to {self.path}: {error.strerror}; {advice(error)}, and use "
                "--resume auto"
            )
        for name, value in scalars.items() if self.events is not None else ():
            self.events.add_scalar(name, value, values["step"])

    def close(self) -> None:
        """Write what the trackers still keep in memory."""
        if self.events is not None:
            self.events.close()
        if self.run is not None:
            self.run.finish()


def metrics_of(config: Config, out: Path, rank: int) -> Metrics:
    """Make the metrics of a run; raises RefusedError where a tracker is asked for and missing."""
    tensorboard = needed("torch.utils.tensorboard", "tracking") if config.tensorboard else None
    run = None
    if config.wandb is not None:  # a run for each rank, in a group, so that a slow one stands out
        wandb, directory = needed("wandb", "tracking"), out / "wandb" / f"rank-{rank}"
        directory.mkdir(parents=True, exist_ok=True)
        # Its own process has to outlive the signal that asks the training to save.
        with block_signals_in_children():
            run = wandb.init(
                project=config.wandb,
                group=out.name,
                name=f"rank-{rank}",
                id=f"{out.name}-{rank}",
                resume="allow",
                dir=str(directory),
                config=asdict(config),
                settings={"silent": rank > 0},  # every rank would print the same summary
            )
    if rank != 0:
        return Metrics(None, run=run)
    events = tensorboard and tensorboard.SummaryWriter(str(out / "tensorboard"))
    return Metrics(out / METRICS, events, run)


def known(value: Any) -> Any:
    """The value, or None for a number that JSON has no way to write."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


MIB = 1 << 20
# Names in a line of metrics, besides those of a task's report and of its own throughput.
LOGGED = {f"{part}_s" for part in Split._fields}.union(
    ("step", "samples", "loss", "lr", "gradient_norm", "validation_loss", "seconds"),
    ("samples_per_second", "slowest"),
)


class Log:
    """Adds up the numbers of the steps since the last line, and writes them."""

    def __init__(
        self, screen: Screen, metrics: Metrics, steps: int, task: Task, clock: Clock
    ) -> None:
        self.screen = screen
        self.metrics = metrics
        self.steps, self.task = steps, task
        self.clock = clock
        self.hosts = from_every_rank(socket.gethostname())
        self.window = torch.zeros(2, dtype=torch.float64, device=clock.device)
        self.timed = self.samples = 0  # steps and samples since the last line
        self.timed_s = self.step_s = 0.0

    def add(self, at: Position, result: Step, took_s: float) -> None:
        """Add up the global loss sum and count of a step, unless the scaler left it out.

        They stay on the device: reading one makes the device wait for Python.
        """
        finite = torch.isfinite(result.gradient_norm + result.loss_and_count[0])
        self.window += torch.where(finite, result.loss_and_count, 0.0)
        self.timed += 1
        self.samples += at.taken
        self.timed_s += took_s
        self.clock.progress.step(at.step, self.steps)

    def write_means(self, at: Position, result: Step, lr: float) -> None:
        """Write the means over the steps since the last line, and set the sums to zero."""
        loss_sum, count, norm = torch.cat((self.window, result.gradient_norm[None])).tolist()
        split = self.clock.split()
        self.clock.progress.phase(WAIT)
        answers = from_every_rank((split, str(self.metrics.problem or "")))
        self.clock.progress.phase(NOTHING)
        splits = [split for split, _ in answers]
        if problem := answers[0][1]:  # rank 0 alone writes
            raise StoppedError(problem)
        speed, rates = self.samples / self.timed_s, {}
        if unit := self.task.counted:  # the throughput in the task's own unit too
            rates = {f"{unit}_per_second": round(count / self.timed_s, 1)}
        self.step_s = self.timed_s / self.timed
        numbers: dict[str, Any] = {
            "step": at.step,
            "samples": at.samples,
            "loss": loss_sum / count if count else math.nan,
            "lr": lr,
            "gradient_norm": norm,
            "samples_per_second": round(speed, 1),
            **rates,
            "seconds": round(at.seconds, 3),
            **spread(splits),
            "slowest": f"rank {slowest(splits)} on {self.hosts[slowest(splits)]}",
        }
        parts = {f"{name}_s": round(value, 6) for name, value in split._asdict().items()}
        rate = numbers["samples_per_second"]
        self.clock.progress.publish(loss=known(numbers["loss"]), rate=rate, **parts)
        self.metrics.write(numbers, parts)
        self.screen.progress(at.step, self.steps, self._note(numbers))
        self.window.zero_()
        self.timed, self.samples, self.timed_s = 0, 0, 0.0

    def _note(self, numbers: Mapping[str, Any]) -> str:
        note = f"loss {numbers['loss']:.3f}{unit_of(self.task)}  lr {numbers['lr']:.1e}"
        note += f"  norm {numbers['gradient_norm']:.2g}"
        note += f"  {numbers['samples_per_second']:.0f} samples/s"
        if rate := numbers.get(f"{self.task.counted}_per_second"):
            note += f"  {rate:,.0f} {self.task.counted}/s"
        if (remaining := self.steps - numbers["step"]) > 0:
            note += f"  {timedelta(seconds=round(remaining * self.step_s))} left"
        return note

    def validation(self, at: Position, loss: float, report: Mapping[str, float]) -> None:
        """Write the validation loss and the task's report."""
        numbers = {"step": at.step, "samples": at.samples, "validation_loss": loss, **report}
        self.metrics.write(numbers)
        measures = in_brief(report)
        if at.step < self.steps or measures:
            text = f"step {at.step}: validation loss {loss:.3f}{unit_of(self.task)}{measures}"
            self.screen.line(text)

    def summary(self, peaks: list[int]) -> None:
        """Print the largest of ``peaks``, the bytes of each rank."""
        self.screen.close()
        rank = peaks.index(max(peaks))
        self.screen.line(f"peak memory {peaks[rank] / MIB:,.0f} MiB, on rank {rank}")

    def state(self) -> dict[str, Any]:
        """The state that a resumed run needs to write the same next line."""
        counts = {"timed": self.timed, "samples": self.samples, "timed_s": self.timed_s}
        return {"window": self.window.cpu().clone(), **counts}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore the state that ``state`` returned."""
        self.window.copy_(state["window"])
        self.timed, self.samples = state["timed"], state["samples"]
        self.timed_s = state["timed_s"]


def brief(report: Mapping[str, float]) -> dict[str, float]:
    """Return the measures that fit on a line; names of single classes have a slash."""
    return {name: value for name, value in report.items() if "/" not in name}


def in_brief(report: Mapping[str, float]) -> str:
    """Return a text of these measures, to follow a loss."""
    return "".join(f"  {name} {value:.4f}" for name, value in brief(report).items())


def spread(splits: list[Split]) -> dict[str, Any]:
    """Minimum, median and maximum over the ranks of each part of a step."""
    parts: dict[str, Any] = {}
    for name in Split._fields:
        values = [getattr(split, name) for split in splits]
        parts[f"{name}_s"] = [round(f(values), 6) for f in (min, median, max)]
    return parts


def slowest(splits: list[Split]) -> int:
    """The rank that the others waited for: it spent most time on data and computation."""
    busy = [split.data + split.compute for split in splits]
    return busy.index(max(busy))


def go_back_to(path: Path, step: int, evaluated: bool) -> None:
    """Remove the lines after ``step``, and its validation too unless it was ``evaluated``."""
    lines = [
        line
        for line in read(path)
        if line["step"] < step
        or (line["step"] == step and (evaluated or "validation_loss" not in line))
    ]
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics file, without what a killed run or machine left half written."""
    lines = []
    for text in path.read_bytes().split(b"\n")[:-1]:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and "step" in line:
            lines.append(line)
    return lines

"""The training loop: from a seed and a task to a trained model."""

from __future__ import annotations

import gc
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from . import rng, schedule
from .config import EPOCH, Config, aim
from .data import Batch, Feed, Order, Reader, default_workers, to_device
from .device import keep_freed, peak_bytes, peak_tflops, profiling
from .distributed import World, from_every_rank, together
from .errors import RefusedError, StoppedError
from .evaluate import Evaluator, refuse_report, unfit
from .kinds import device_module
from .learner import Learner
from .log import Log, Metrics, Sizes, Step
from .means import refuse_means
from .progress import NOTHING, SAVE, VALIDATE
from .saving import Saver, begin
from .schedule import Position
from .screen import Screen
from .task import Task, unit_of
from .trackers import Tracker

# The scaler of half precision halves its scale after each step that is not finite, and leaves that
# step out: so it finds the scale. When it has done so this often in a row, no scale helps.
HALVINGS = 32
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

    def __init__(self, order: Order, device: torch.device, config: Config, screen: Screen) -> None:
        self.order = order
        self.device = device
        self.on_device = device.type != "cpu"
        self.screen = screen
        self.scaled = config.precision == "fp16"
        self.allowed = max(config.skip_nonfinite, HALVINGS if self.scaled else 0)
        self.in_a_row = 0  # steps that were not finite
        self.unseen: deque[_Seen] = deque()

    def look(self, step: int, first: int, result: Step) -> bool:
        """Whether the ranks agreed to stop; ``first`` is where in the stream the step began.

        Raises StoppedError on every rank when the loss of a step was not finite on one of them, or
        the gradient, unless ``--skip-nonfinite`` allows for it.
        """
        totals, arrived = result.totals, None
        if self.on_device:
            totals = torch.empty_like(totals, device="cpu", pin_memory=True)
            totals.copy_(result.totals, non_blocking=True)
            arrived = device_module(self.device).Event()
            arrived.record()
        self.unseen.append(_Seen(step, first, totals, result.losses, arrived))
        stop = False
        while len(self.unseen) > (LAG if self.on_device else 0):
            stop |= self._see(self.unseen.popleft())
        return stop

    def look_at_all(self) -> None:
        """Wait for the device and look at every step; raises as ``look`` does."""
        while self.unseen:
            self._see(self.unseen.popleft())

    def _see(self, seen: _Seen) -> bool:
        if seen.arrived is not None:
            seen.arrived.synchronize()
        loss, _, stops, norm = seen.totals.tolist()
        if math.isfinite(loss) and math.isfinite(norm):
            self.in_a_row = 0
            return bool(stops)
        self.in_a_row += 1
        if self.in_a_row > self.allowed:
            culprits = from_every_rank(self._culprits(seen))
            raise StoppedError("; ".join(filter(None, culprits)) or _of_gradient(seen.step, norm))
        if not self.scaled:
            what = f"loss {loss:.3f}, norm of the gradient {norm:.3g}"
            self.screen.line(f"step {seen.step} changed no weight: {what}")
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


def _of_gradient(step: int, norm: float) -> str:
    return (
        f"the norm of the gradient of step {step} is {norm}, and its loss is finite; no weight was "
        "changed; type a lower --lr or a longer --warmup, or --skip-nonfinite 1 to go on without "
        "such steps"
    )


@contextmanager
def collecting(every: int) -> Iterator[Callable[[int], None]]:
    """Collect garbage after every ``every``-th step and at no other time; 0: as Python does it.

    A collection takes tens of milliseconds, and Python begins it at another moment on each rank,
    while all the others wait. Between the same two steps everywhere it costs its time once.
    """
    if not every:
        yield lambda _: None
        return

    def collect(step: int) -> None:
        if step % every == 0:
            gc.collect(1)

    gc.collect()
    gc.disable()
    try:
        yield collect
    finally:
        gc.enable()


class Place(NamedTuple):
    """Where a run happens, and where it writes."""

    world: World
    device: torch.device
    out: Path
    screen: Screen
    metrics: Metrics
    trackers: Sequence[Tracker]


class Measured(NamedTuple):
    """What an evaluation found: the loss, the report of the task, and the sums behind both."""

    loss: float
    report: dict[str, float]
    sums: Mapping[str, Tensor]


class Outcome(NamedTuple):
    """The model without wrappers, how far it came, and its last evaluations by split."""

    model: nn.Module
    at: Position
    complete: bool
    measured: Mapping[str, Measured]


def train(
    task: Task,
    config: Config,
    place: Place,
    identity: dict[str, Any],
    checkpoint: Path | None,
    wants_stop: Callable[[], bool],
) -> Outcome:
    """Train from ``checkpoint``, or from the beginning, until the end or until a rank must stop.

    Every rank calls it with the same task, configuration and checkpoint, and gets the same result.
    """
    run = Training(task, config, place, wants_stop)
    saver = Saver(place.out, identity, config, place.world, run.learner)
    at = saver.restore(checkpoint, run.log)
    if config.eval_only:
        if checkpoint is None and config.init is None and not task.pretrained:
            raise RefusedError(
                "--eval-only evaluates the weights of --resume or --init; type one of them",
                shared=True,
            )
        return Outcome(run.learner.bare, at, True, run.at_the_end(None))
    saver.look_for_room(run.saves())
    if run.complete(at) or (config.eval_at_start and checkpoint is None):
        at = at.unevaluated()  # of a complete run, it can still be asked how good it is
    together(lambda: begin(config, place.out, at) if place.world.rank == 0 else None)
    try:
        at, last = steps_and_validations(run, saver, at)
    except StoppedError:
        saver.wait()  # what was saved before is to be had
        raise
    saver.finish()
    run.log.summary(from_every_rank(peak_bytes(place.device)))
    complete = run.complete(at)
    return Outcome(run.learner.bare, at, complete, run.at_the_end(last) if complete else {})


def steps_and_validations(
    run: Training, saver: Saver, at: Position
) -> tuple[Position, Measured | None]:
    """Go on from a position until the run is complete or a rank must stop; and save on the way.

    Returns the position, and the last validation if there was one.
    """
    config, place = run.config, run.place
    batches = run.batches(at)
    last: Measured | None = None
    stop = False
    trace = place.out / f"trace-rank{place.world.rank}.json"
    with collecting(config.gc_every) as collect, profiling(config.profile, trace) as record:
        # The position tells which is next, a step or a validation.
        while not stop and not run.complete(at):
            if at.evaluated:
                at, stop = run.step(at, batches)
                collect(at.step)
                if record is not None:
                    record()
            else:
                at, stop, last = run.validation(at)
            if stop or run.worth_saving(at):
                run.watch.look_at_all()
                run.log.clock.progress.phase(SAVE)
                saver.save(at, run.log)
                run.log.clock.progress.phase(NOTHING)
    return at, last


class Training:
    """The parts of a run, and the two things it consists of: steps and validations."""

    def __init__(
        self, task: Task, config: Config, place: Place, wants_stop: Callable[[], bool]
    ) -> None:
        self.task = task
        self.config = config
        self.place = place
        self.wants_stop = wants_stop
        world, device = place.world, place.device
        keep_freed(device)
        self.reader = Reader(task, "train", config.task, config.seed)
        length = len(self.reader)
        batch = schedule.global_batch(config, world.size)
        self.order = Order(length, config.seed, batch, config.accumulate, world.rank, world.size)
        self.steps = schedule.steps(config, length, batch)
        self.schedule = schedule.schedule(config, self.steps)
        self.measure, self.more_is_better = aim(config.best)
        self.workers = default_workers(config.loader_workers, device, world)

        self.learner = Learner(task, config, world, device, batch / world.size)
        self._try_out()
        wanted = ("validation", *config.eval_splits.split(","))
        self.evaluators = {
            split: Evaluator(task, config.task, self.learner, self.workers, split)
            for split in dict.fromkeys(wanted)
        }
        # All that is alike on all ranks is made: from here on each draws numbers of its own.
        rng.seed(config.seed, world.rank)
        self.watch = Watch(self.order, device, config, place.screen)
        self.log = Log(
            place.screen, place.metrics, place.trackers, self._sizes(), self.learner.clock
        )
        lines = self.learner.describe()
        if self.measure != "loss":
            lines.append(f"best: {'max' if self.more_is_better else 'min'} of {self.measure}")
        for line in lines:
            place.screen.line(line)

    def _try_out(self) -> None:
        """Refuse a task whose loss or report is not what it has to be, by its first batch."""
        refuse_means(self.learner, self._first_and_halves())
        first, device = self.reader[self.order.batch(0, 0)], self.place.device
        refuse_report(self.learner, to_device(first, device), self.measure)
        self.learner.settle(to_device(first, device))  # a task may have taken the other apart

    def _first_and_halves(self) -> list[Any]:
        """The first batch of this rank, of two samples at least, and its two halves."""
        place = self.order.positions(0, 0)
        end = max(place.stop, place.start + 2)
        middle = (place.start + end) // 2
        parts = (range(place.start, end), range(place.start, middle), range(middle, end))
        return [
            to_device(self.reader[Batch(part, self.order.indices(part))], self.place.device)
            for part in parts
        ]

    def _sizes(self) -> Sizes:
        peak = peak_tflops(self.config.peak_tflops, self.place.device, self.config.precision)
        return Sizes(
            steps=self.steps,
            every=self.config.log_every,
            global_batch=self.order.global_batch,
            unit=unit_of(self.task),
            counted=self.task.counted,
            flops_per_sample=self.task.flops_per_sample,
            peak_flops=peak and peak * 1e12 * self.place.world.size,
        )

    def batches(self, at: Position) -> Iterator[Any]:
        """The batches of this rank from a position to the end."""
        indices = self.order.batches(at.samples, self.steps - at.step)
        return iter(Feed(self.reader, indices, self.workers, self.place.device))

    def step(self, at: Position, batches: Iterator[Any]) -> tuple[Position, bool]:
        """One step: the position behind it, and whether the ranks agreed to stop there."""
        began, step = time.perf_counter(), at.step + 1
        lr = self.learner.set_lr(self.schedule.share(step))
        result = self.learner.step(batches, self.wants_stop)
        stop = self.watch.look(step, at.samples, result)
        if unused := self.learner.unused():
            self.place.screen.line(f"without a gradient in the first step: {unused}")
        if self._is_waited_for(step, at.samples + self.order.global_batch):
            self.learner.clock.wait_for_device()
        took_s = time.perf_counter() - began
        validate = self._due(self.config.eval_every, step, at.samples + self.order.global_batch)
        at = at.after_step(self.order.global_batch, took_s, validate)
        self.log.step(at, result, lr, took_s)
        return at, stop

    def at_the_end(self, last: Measured | None) -> dict[str, Measured]:
        """What is wanted of each split at the end; ``last`` is the validation before it."""
        found = {}
        for split in self.config.eval_splits.split(","):
            if split == "validation" and last is not None:
                found[split] = last
                continue
            found[split] = self._measured(self.evaluators[split](lambda: False) or {})
        return found

    def _measured(self, sums: Mapping[str, Tensor]) -> Measured:
        report = {name: float(value) for name, value in self.task.report(sums).items()}
        return Measured(float(sums["loss"] / sums["count"]), report, sums)

    def validation(self, at: Position) -> tuple[Position, bool, Measured | None]:
        """The position with its loss, false, and the rest; or that the ranks agreed to stop."""
        self.log.clock.progress.phase(VALIDATE)
        sums = self.evaluators["validation"](self.wants_stop)
        self.log.clock.progress.phase(NOTHING)
        if sums is None:
            return at, True, None
        found = self._measured(sums)
        loss, report = found.loss, found.report
        if wrong := unfit(report, self.measure):
            raise StoppedError(wrong)
        if not (math.isfinite(loss) or self.config.skip_nonfinite):
            raise StoppedError(
                f"the validation loss of step {at.step} is {loss}; look at the samples held out, "
                "or type --skip-nonfinite 1 to go on"
            )
        value = loss if self.measure == "loss" else report[self.measure]
        at = at.after_validation(loss, value, self.more_is_better)
        self.log.validation(at, loss, report)
        if self._is_impatient(at) and at.step < self.steps:
            since = f"{at.since_best} validations since step {at.best_step}"
            self.place.screen.line(
                f"no better {self.measure} in {since}: ended after step {at.step}"
            )
        return at, False, found

    def _is_impatient(self, at: Position) -> bool:
        patience = self.config.patience
        return patience is not None and at.since_best >= patience

    def complete(self, at: Position) -> bool:
        """Whether nothing is left to do."""
        return at.evaluated and (at.step >= self.steps or self._is_impatient(at))

    def worth_saving(self, at: Position) -> bool:
        """Whether a checkpoint is due at this position, or it is the best so far."""
        return at.evaluated and (
            at.best_step == at.step
            or self._due(self.config.save_every, at.step, at.samples)
            or self.complete(at)
        )

    def _is_waited_for(self, step: int, samples: int) -> bool:
        """Whether something behind this step waits for the device: that time is the steps' own."""
        config = self.config
        each = (config.log_every, config.eval_every, config.save_every)
        return any(self._due(every, step, samples) for every in each)

    def _due(self, every: int | str, step: int, samples: int) -> bool:
        """Whether something is due behind a step, with so many samples used up."""
        if step == self.steps:
            return True
        if every == EPOCH:
            return schedule.ends_epochs(samples, self.order.global_batch, self.order.length)
        return bool(every) and step % int(every) == 0

    def saves(self) -> int:
        """The most checkpoints that the run may write: one at the end, the due, and the best."""
        size = (self.steps, self.order.global_batch, self.order.length)
        return 1 + sum(
            schedule.times(every, *size)
            for every in (self.config.save_every, self.config.eval_every)
        )

"""The training loop: from a seed and a task to a trained model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from . import hardware, memory, rng, schedule
from .between import collecting, profiling
from .config import Config
from .data import Feed, Reader, default_workers, to_device
from .distributed import World, from_every_rank
from .evaluate import Evaluator
from .learner import Learner
from .metrics import Metrics
from .order import Order
from .progress import Progress
from .report import Log, Sizes
from .saving import Saver
from .screen import Screen
from .task import Measuring, Task, unit_of
from .track import Trackers
from .watch import Watch


class Place(NamedTuple):
    """Where a run happens, and where it writes."""

    world: World
    device: torch.device
    out: Path
    screen: Screen
    metrics: Metrics
    trackers: Trackers


class Outcome(NamedTuple):
    """The model without wrappers, how far it came, and the sums of its last validation."""

    model: nn.Module
    at: Progress
    complete: bool
    sums: Mapping[str, Tensor]


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
    run = Run(task, config, place, wants_stop)
    saver = Saver(place.out, identity, config, place.world, run.learner)
    at = saver.restore(checkpoint, run.log)
    if run.complete(at):
        at = at.unevaluated()  # what can still be asked is how good it is
    place.metrics.go_back_to(at.step, at.evaluated)
    batches = run.batches(at)
    sums: Mapping[str, Tensor] = {}
    stop = False
    trace = place.out / f"trace-rank{place.world.rank}.json"
    with collecting(config.gc_every) as collect, profiling(config.profile, trace) as record:
        # A run is a sequence of steps and validations; the position tells which is next.
        while not stop and not run.complete(at):
            if at.evaluated:
                at, stop = run.step(at, batches)
                collect(at.step)
                record()
            else:
                at, stop, sums = run.validation(at)
            if stop or run.worth_saving(at):
                run.watch.look_at_all()
                saver.save(at, run.log)
    saver.finish()
    run.log.summary(from_every_rank(memory.peak_bytes(place.device)))
    return Outcome(run.learner.bare, at, run.complete(at), sums)


class Run:
    """The parts of a run, and the two things it consists of: steps and validations."""

    def __init__(
        self, task: Task, config: Config, place: Place, wants_stop: Callable[[], bool]
    ) -> None:
        self.task = task
        self.config = config
        self.place = place
        self.wants_stop = wants_stop
        world, device = place.world, place.device
        memory.keep_freed(device)
        self.reader = Reader(task, "train", config.task)
        length = len(self.reader)
        batch = schedule.global_batch(config, world.size)
        self.order = Order(length, config.seed, batch, config.accumulate, world.rank, world.size)
        self.steps = schedule.steps(config, length, batch)
        self.workers = default_workers(config.loader_workers, device, world)

        self.learner = Learner(task, config, world, device, batch / world.size)
        first = self.reader[self.order.indices(self.order.positions(0, 0))]
        self.learner.settle(to_device(first, device))
        # From here on each rank draws its own numbers, for dropout and the like.
        rng.seed(config.seed, world.rank)

        self.evaluate = Evaluator(
            task, config.task, self.learner, config.eval_batch_size, self.workers
        )
        self.watch = Watch(self.order, device)
        self.log = Log(
            place.screen, place.metrics, place.trackers, self._sizes(), self.learner.clock
        )
        parameters = sum(p.numel() for p in self.learner.bare.parameters())
        place.screen.line(f"{parameters:,} parameters")

    def _sizes(self) -> Sizes:
        peak = hardware.peak_tflops(
            self.config.peak_tflops, self.place.device, self.config.precision
        )
        return Sizes(
            steps=self.steps,
            every=self.config.log_every,
            global_batch=self.order.global_batch,
            unit=unit_of(self.task),
            counted=getattr(self.task, "counted", ""),
            flops_per_sample=getattr(self.task, "flops_per_sample", None),
            peak_flops=peak and peak * 1e12 * self.place.world.size,
        )

    def batches(self, at: Progress) -> Iterator[Any]:
        """The batches of this rank from a position to the end."""
        indices = self.order.batches(at.samples, self.steps - at.step)
        return iter(Feed(self.reader, indices, self.workers, self.place.device))

    def step(self, at: Progress, batches: Iterator[Any]) -> tuple[Progress, bool]:
        """One step: the position behind it, and whether the ranks agreed to stop there."""
        began, step = time.perf_counter(), at.step + 1
        lr = self.config.lr * schedule.lr_share(step, self.steps, self.config.warmup)
        self.learner.set_lr(lr)
        result = self.learner.step(batches, self.wants_stop)
        stop = self.watch.look(step, at.samples, result)
        if self._is_waited_for(step):
            self.learner.clock.wait_for_device()
        took_s = time.perf_counter() - began
        at = at.after_step(self.order.global_batch, took_s, self._due(self.config.eval_every, step))
        self.log.step(at, result.totals, lr, took_s)
        return at, stop

    def validation(self, at: Progress) -> tuple[Progress, bool, Mapping[str, Tensor]]:
        """The position with its loss, false, and the sums; or that the ranks agreed to stop."""
        sums = self.evaluate(self.wants_stop)
        if sums is None:
            return at, True, {}
        loss = float(sums["loss"] / sums["count"])
        said = self.task.report(sums) if isinstance(self.task, Measuring) else {}
        report = {name: float(value) for name, value in said.items()}
        at = at.after_validation(loss)
        self.log.validation(at, loss, report)
        return at, False, sums

    def complete(self, at: Progress) -> bool:
        """Whether nothing is left to do."""
        return at.step >= self.steps and at.evaluated

    def worth_saving(self, at: Progress) -> bool:
        """Whether a checkpoint is due at this position, or it is the best so far."""
        return at.evaluated and (
            at.best_step == at.step or self._due(self.config.save_every, at.step)
        )

    def _is_waited_for(self, step: int) -> bool:
        """Whether something behind this step waits for the device: that time is the steps' own."""
        config = self.config
        each = (config.log_every, config.eval_every, config.save_every)
        return any(self._due(every, step) for every in each)

    def _due(self, every: int, step: int) -> bool:
        return step == self.steps or bool(every and step % every == 0)

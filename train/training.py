"""Make the parts of a run, try them out before its first step, and run its validations."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import rng, schedule
from .arranged import order_of
from .checks import refuse_sums, samples_of
from .config import Config, aim
from .data import Reader, Readers, is_stream
from .distributed import World, run_on_all_ranks
from .errors import StoppedError
from .feed import Feed, loader_workers, to_device
from .log import LOGGED, Log, Metrics, brief
from .order import Batch
from .progress import NOTHING, VALIDATE
from .schedule import Position
from .screen import Screen
from .streamed import Evaluated, Stream
from .trainer import Trainer
from .watch import Watch


class Place(NamedTuple):
    """The world and device of a run on this rank, and its outputs."""

    world: World
    device: torch.device
    out: Path
    screen: Screen
    metrics: Metrics


class Measured(NamedTuple):
    """The results of an evaluation: the loss, the task's report, and the sums both come from."""

    loss: float
    report: dict[str, float]
    sums: Mapping[str, Tensor]


MANY = 1000  # batches of a validation, after which a stream may be one without an end


class Evaluator:
    """Evaluates the model on one split, in its present state at each call."""

    def __init__(self, reader: Reader, trainer: Trainer, workers: int, screen: Screen) -> None:
        """Batch i of the samples of a split goes to rank i modulo the number of ranks.

        So a batch holds the same samples however many ranks there are, and nothing is padded.
        """
        world, size = trainer.world, trainer.config.eval_batch_size
        self.trainer, self.screen, self.split = trainer, screen, reader.split
        self.rounds: int | None = None  # unknown until the end
        if is_stream(reader.samples):
            evaluated = Evaluated(reader, size, world.rank, world.size)
            self.feed = Feed(evaluated, None, min(workers, 1), trainer.device)
            return
        length = len(reader)
        batches = [range(at, min(at + size, length)) for at in range(0, length, size)]
        self.rounds = math.ceil(len(batches) / world.size)
        batches_of_rank = [Batch(batch, batch) for batch in batches[world.rank :: world.size]]
        self.feed = Feed(reader, batches_of_rank, workers, trainer.device)

    def __call__(self, wants_stop: Callable[[], bool]) -> dict[str, Tensor] | None:
        """Return the sums over all samples, in double precision on the CPU, the same on every rank.

        None if the ranks agreed to stop. Raises StoppedError where no rank had a sample.
        """
        sums = self.trainer.evaluate(self._batches(), self.rounds, wants_stop)
        if sums == {}:
            raise StoppedError(
                f"the data set {self.split!r} gave no sample; look at what dataset() reads"
            )
        return sums

    def _batches(self) -> Iterator[Any]:
        for number, batch in enumerate(self.feed):
            if number == MANY and self.rounds is None:
                self.screen.line(
                    f"the data set {self.split!r} gave {MANY:,} batches to each rank and goes on; "
                    "if it has no end, return a part of it, as with itertools.islice or take()"
                )
            yield batch


class Training:
    """Holds all that the steps of a run need, and runs its validations."""

    def __init__(
        self, readers: Readers, config: Config, place: Place, wants_stop: Callable[[], bool]
    ) -> None:
        self.task = task = readers.task
        self.config = config
        self.place = place
        self.wants_stop = wants_stop
        world, device = place.world, place.device
        self.reader = readers["train"]
        self.order = order_of(task, self.reader, config, world)
        is_streamed = is_stream(self.reader.samples)
        self.stream = Stream(self.reader, self.order) if is_streamed else None
        if self.stream is not None:
            self.reader = self.stream.reader
        self.schedule = schedule.schedule(config, self.order.kind.length, self.order.mean)
        self.measure, self.more_is_better = aim(config.best)
        online = os.cpu_count() or 1
        known = hasattr(os, "sched_getaffinity")  # Linux
        cpus = len(os.sched_getaffinity(0)) if known else online
        wanted_workers = config.loader_workers
        self.workers = loader_workers(wanted_workers, device.type, world, cpus, online)

        self.trainer = Trainer(task, config, world, device, self.order.global_batch / world.size)
        line = self._try_out()
        wanted = ("validation", *config.eval_splits.split(","))
        self.evaluators = {
            split: Evaluator(readers[split], self.trainer, self.workers, place.screen)
            for split in dict.fromkeys(wanted)
        }
        self.samples = {"train": samples_of(self.reader, self.order)}
        self.samples |= {split: samples_of(readers[split], None) for split in self.evaluators}
        # All that must be the same on all ranks is made; from here on each rank draws its own
        # numbers.
        rng.seed(config.seed, world.rank)
        self.watch = Watch(self.order, device, config)
        steps, clock = self.schedule.steps, self.trainer.clock
        self.log = Log(place.screen, place.metrics, steps, task, clock)
        lines = [task.origin, *self.trainer.describe(), line]
        if self.measure != "loss":
            lines.append(f"best: {'max' if self.more_is_better else 'min'} of {self.measure}")
        if self.stream is not None:
            lines.append(self.stream.promise())
        for line in filter(None, lines):
            place.screen.line(line)

    def _try_out(self) -> str:
        """Refuse a task if the loss of its first batch cannot be used; return what is odd."""
        before = copy.deepcopy(self.task.state_dict())
        line = refuse_sums(self.trainer, run_on_all_ranks(self._first_and_halves))
        self.trainer.refuse_changed_tensors()
        self.task.load_state_dict(before)
        return line

    def _first_and_halves(self) -> list[Any]:
        """The first batch of this rank, of two samples at least, and its two halves."""
        whole = self.order.batch(0, 0)
        if len(whole.places) < 2:
            whole = self.order.at(range(whole.places[0], whole.places[0] + 2))
        middle = len(whole.places) // 2
        parts = (slice(None), slice(middle), slice(middle, None))
        batches = [Batch(whole.places[part], whole.indices[part]) for part in parts]
        return [to_device(self.reader[batch], self.place.device) for batch in batches]

    def batches(self, at: Position) -> Iterator[Any]:
        """The batches of this rank from a position to the end."""
        steps, device = self.schedule.steps - at.step, self.place.device
        if self.stream is not None:
            return self.stream.batches(at.samples, steps, self.workers, device)
        order = self.order.batches(at.samples, steps)
        return iter(Feed(self.reader, order, self.workers, device))

    def at_the_end(self, last: Measured | None) -> dict[str, Measured]:
        """Evaluate the splits of --eval-splits at the end; ``last`` is the last validation."""
        known = {} if last is None else {"validation": last}
        return {
            split: known.get(split) or self._measured(self.evaluators[split](lambda: False) or {})
            for split in self.config.eval_splits.split(",")
        }

    def _measured(self, sums: Mapping[str, Tensor]) -> Measured:
        numbers = self.task.report(sums)
        if wrong := unfit(numbers, self.measure):
            raise StoppedError(wrong)
        report = {name: float(value) for name, value in numbers.items()}
        return Measured(float(sums["loss"] / sums["count"]), report, sums)

    def validation(self, at: Position) -> tuple[Position, bool, Measured | None]:
        """Validate; return the position, whether the ranks agreed to stop, or else the results."""
        self.log.clock.progress.phase(VALIDATE)
        sums = self.evaluators["validation"](self.wants_stop)
        self.log.clock.progress.phase(NOTHING)
        if sums is None:
            return at, True, None
        measured = self._measured(sums)
        loss, report = measured.loss, measured.report
        if not math.isfinite(loss):
            raise StoppedError(
                f"the validation loss of step {at.step} is {loss}; look at the samples held out"
            )
        value = loss if self.measure == "loss" else report[self.measure]
        at = at.after_validation(loss, value, self.more_is_better)
        self.log.validation(at, loss, report)
        if self.schedule.is_impatient(at) and at.step < self.schedule.steps:
            since = f"{at.since_best} validations since step {at.best_step}"
            self.place.screen.line(
                f"no better {self.measure} in {since}: ended after step {at.step}"
            )
        return at, False, measured


def unfit(report: Mapping[str, Any], best: str) -> str:
    """Return the reason why a report cannot be logged, or lacks the measure of --best; or ""."""
    if taken := LOGGED.intersection(report):
        return (
            f"report() of the task returns {min(taken)!r}, which the log has itself; give it "
            "another name"
        )
    if best != "loss" and best not in report:
        return f"--best: the report has no {best!r}; use {', '.join(('loss', *brief(report)))}"
    return ""

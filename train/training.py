"""Make the parts of a run, try them out before its first step, and run its validations."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import rng, schedule
from .arranged import order_of
from .checks import refuse_gradients, refuse_sums, samples_of
from .config import Config, aim
from .data import Reader, Readers, come_in_turn
from .distributed import World, refuse_if_any, run_on_all_ranks
from .errors import StoppedError
from .feed import NO_MORE, Feed, default_workers, to_device
from .log import OWN, Log, Metrics, brief
from .order import Batch
from .progress import NOTHING, VALIDATE
from .schedule import Position
from .screen import Screen
from .streamed import Evaluated, Passes, State, Stream
from .trackers import Tracker
from .trainer import Trainer
from .watch import Watch


class Place(NamedTuple):
    """The world and device of a run on this rank, and its outputs."""

    world: World
    device: torch.device
    out: Path
    screen: Screen
    metrics: Metrics
    trackers: Sequence[Tracker]


class Measured(NamedTuple):
    """The results of an evaluation: the loss, the task's report, and the sums both come from."""

    loss: float
    report: dict[str, float]
    sums: Mapping[str, Tensor]


MANY = 1000  # batches of a validation, after which a stream may be one without an end


class InOrder:
    """Iterates over this rank's batches of an evaluation, each of ``size`` neighbouring samples."""

    def __init__(self, length: int, size: int, world: World) -> None:
        starts = range(0, length, size)
        self.rounds = -(-len(starts) // world.size)
        self.own = starts[world.rank :: world.size]
        self.length = length
        self.size = size

    def __iter__(self) -> Iterator[Batch]:
        for start in self.own:
            part = range(start, min(start + self.size, self.length))
            yield Batch(part, part)


class Evaluator:
    """Evaluates the model on one split, in its present state at each call."""

    def __init__(self, reader: Reader, trainer: Trainer, workers: int, screen: Screen) -> None:
        """Batch i of the samples of a split goes to rank i modulo the number of ranks.

        So a batch holds the same samples however many ranks there are, and nothing is padded.
        """
        world, batch_size = trainer.world, trainer.config.eval_batch_size
        self.trainer, self.screen = trainer, screen
        self.nothing = f"the data set {reader.split!r} gave no sample; look at what dataset() reads"
        self.endless = (
            f"the data set {reader.split!r} gave {MANY:,} batches to each rank and goes on; if it "
            "has no end, return a part of it, as with itertools.islice or take()"
        )
        self.rounds: int | None = None  # unknown until the end
        if come_in_turn(reader.samples):
            evaluated = Evaluated(reader, batch_size, world.rank, world.size)
            self.feed = Feed(evaluated, None, min(workers, 1), trainer.device)
            empty = Passes(reader, State()).take() is NO_MORE
            refuse_if_any(self.nothing if empty else "")
            return
        order = InOrder(len(reader), batch_size, world)
        self.rounds = order.rounds
        self.feed = Feed(reader, order, workers, trainer.device)

    def __call__(self, wants_stop: Callable[[], bool]) -> dict[str, Tensor] | None:
        """Return the sums over all samples, in double precision on the CPU, the same on every rank.

        None if the ranks agreed to stop. Raises StoppedError where no rank had a sample.
        """
        sums = self.trainer.evaluate(self._batches(), self.rounds, wants_stop)
        if sums == {}:
            raise StoppedError(self.nothing)
        return sums

    def _batches(self) -> Iterator[Any]:
        for number, batch in enumerate(self.feed):
            if number == MANY and self.rounds is None:
                self.screen.line(self.endless)
            yield batch


class Training:
    """Holds all that the steps of a run need, and runs its validations."""

    def __init__(
        self,
        readers: Readers,
        config: Config,
        place: Place,
        wants_stop: Callable[[], bool],
    ) -> None:
        self.task = task = readers.task
        self.config = config
        self.place = place
        self.wants_stop = wants_stop
        world, device = place.world, place.device
        self.reader = readers["train"]
        self.order = order_of(task, self.reader, config, world)
        in_turn = come_in_turn(self.reader.samples)
        self.stream = Stream(self.reader, self.order) if in_turn else None
        if self.stream is not None:
            self.reader = self.stream.reader
        self.schedule = schedule.schedule(config, self.order.kind.length, self.order.mean)
        self.measure, self.more_is_better = aim(config.best)
        self.workers = default_workers(config.loader_workers, device, world)

        self.trainer = Trainer(task, config, world, device, self.order.global_batch / world.size)
        lines = self._try_out()
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
        self.log = Log(
            *(place.screen, place.metrics, place.trackers),
            *(self.schedule.steps, task, self.trainer.clock),
        )
        lines = [task.origin, *self.trainer.describe(), *lines]
        if self.measure != "loss":
            lines.append(f"best: {'max' if self.more_is_better else 'min'} of {self.measure}")
        if self.stream is not None:
            lines.append(self.stream.promise())
        for line in filter(None, lines):
            place.screen.line(line)

    def _try_out(self) -> list[str]:
        """Refuse a task if the loss or the gradients of its first batch cannot be used.

        Returns lines on what is odd, and may be meant so.
        """
        before = copy.deepcopy(self.task.state_dict())
        no_sum = refuse_sums(self.trainer, run_on_all_ranks(self._first_and_halves))
        first = run_on_all_ranks(lambda: self.reader[self.order.batch(0, 0)])
        unused = refuse_gradients(self.trainer, to_device(first, self.place.device))
        self.task.load_state_dict(before)
        return [no_sum, unused and f"without a gradient in the first batch: {unused}"]

    def _first_and_halves(self) -> list[Any]:
        """The first batch of this rank, of two samples at least, and its two halves."""
        whole = self.order.batch(0, 0)
        if len(whole.places) < 2:
            whole = self.order.at(range(whole.places[0], whole.places[0] + 2))
        middle = len(whole.places) // 2
        parts = (slice(None), slice(middle), slice(middle, None))
        batches = [Batch(whole.places[part], whole.indices[part]) for part in parts]
        return [to_device(self.reader[one], self.place.device) for one in batches]

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


SHOWN = 64  # characters of a wrong report


def unfit(report: Any, best: str) -> str:
    """The reason why a report cannot be logged, or lacks the measure of --best; or ""."""
    try:
        _ = {name: float(value) for name, value in report.items()}
    except (AttributeError, TypeError, ValueError, RuntimeError):
        shown = " ".join(str(report).split())[:SHOWN]
        return (
            f"report() of the task returns {shown}, which is not a number for each name; return "
            'some, as in: return {"accuracy": sums["right"] / sums["count"]}'
        )
    if taken := OWN.intersection(report):
        return (
            f"report() of the task returns {min(taken)!r}, which the log has itself; give it "
            "another name"
        )
    if best != "loss" and best not in report:
        return f"--best: the report has no {best!r}; type {', '.join(('loss', *brief(report)))}"
    return ""


SKIPPED, WARM_UP, RECORDED = 5, 1, 3  # steps


@contextmanager
def profiling(wanted: bool, trace: Path) -> Iterator[Callable[[], None] | None]:
    """Write a trace of a few steps, after the first ones; call what is yielded after each step."""
    if not wanted:
        yield None
        return

    def write(recorded: Any) -> None:
        recorded.export_chrome_trace(str(trace))

    shape = {"skip_first": SKIPPED, "wait": 0, "warmup": WARM_UP, "active": RECORDED, "repeat": 1}
    steps = torch.profiler.schedule(**shape)
    with torch.profiler.profile(schedule=steps, on_trace_ready=write) as recorder:
        yield recorder.step

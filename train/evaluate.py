"""Evaluate the held-out samples of a split, each read once on any number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

from .data import NO_MORE, Feed, Reader, come_in_turn
from .distributed import World, refuse_if_any
from .errors import StoppedError
from .order import Batch
from .streamed import Evaluated, Passes, State
from .trainer import Trainer


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

    def __init__(self, reader: Reader, trainer: Trainer, workers: int) -> None:
        """Batch i of the samples of a split goes to rank i modulo the number of ranks.

        So a batch holds the same samples however many ranks there are, and nothing is padded.
        """
        world, batch_size = trainer.world, trainer.config.eval_batch_size
        self.trainer = trainer
        self.nothing = f"the data set {reader.split!r} gave no sample; look at what dataset() reads"
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
        sums = self.trainer.evaluate(iter(self.feed), self.rounds, wants_stop)
        if sums == {}:
            raise StoppedError(self.nothing)
        return sums

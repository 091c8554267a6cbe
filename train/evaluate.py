"""Loss and measures on held-out samples, each of them counted once on any number of ranks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .data import NO_MORE, Feed, Reader, come_in_turn, number_on
from .distributed import World, any_rank, from_every_rank, refuse_if_any, sum_over_ranks
from .errors import StoppedError
from .learner import Learner
from .log import OWN, brief
from .order import Batch
from .schedule import collect_if_due
from .streamed import Evaluated, Passes, State
from .task import has, name_of

SHOWN = 64  # characters of a wrong report
ASK_EVERY = 8  # batches between two agreements of the ranks on whether to stop


def refuse_report(learner: Learner, batch: Any, best: str) -> None:
    """Raises RefusedError on all ranks where the report of a batch cannot be logged or compared.

    ``best`` is the measure that --best names. The first validation would find it out, hours later.
    """
    if not has(learner.task, "report"):
        return
    wrong = ""
    with learner.evaluating():
        try:
            with learner.autocast():
                sums = learner.task.measure(learner.bare, batch)
            numbers = {k: number_on(v, learner.device).double().cpu() for k, v in sums.items()}
            wrong = unfit(learner.task.report(numbers), best)
        except Exception:  # as of a report that wants all samples: the validation will tell
            pass
    refuse_if_any(wrong)


def unfit(report: Any, best: str) -> str:
    """Why a report cannot be logged, or has not what is compared; "" if it is right."""
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


class InOrder:
    """Every so many neighbours a batch, of which some are this rank's; anew in each evaluation."""

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
    """Evaluates the model as it is, as often as asked."""

    def __init__(self, reader: Reader, learner: Learner, workers: int) -> None:
        """Batch i of the samples of a split goes to rank i modulo the number of ranks.

        So a batch holds the same samples however many ranks there are, and nothing is padded.
        """
        world, batch_size = learner.world, learner.config.eval_batch_size
        self.learner = learner
        self.nothing = f"the data set {reader.split!r} gave no sample; look at what dataset() reads"
        self.wrong = ""  # what this rank has to say about what the task measured
        self.rounds: int | None = None  # not known before
        if come_in_turn(reader.samples):
            evaluated = Evaluated(reader, batch_size, world.rank, world.size)
            self.feed = Feed(evaluated, None, min(workers, 1), learner.device)
            empty = Passes(reader, State()).take() is NO_MORE
            refuse_if_any(self.nothing if empty else "")
            return
        order = InOrder(len(reader), batch_size, world)
        self.rounds = order.rounds
        self.feed = Feed(reader, order, workers, learner.device)

    def __call__(self, wants_stop: Callable[[], bool]) -> dict[str, Tensor] | None:
        """The sums over all samples, in double precision on the CPU, the same on every rank.

        None if the ranks agreed to stop.
        """
        self.learner.share_buffers()
        with self.learner.evaluating():
            sums = self._own_sums(wants_stop)
        return None if sums is None else self._over_ranks(sums)

    def _own_sums(self, wants_stop: Callable[[], bool]) -> dict[str, Tensor] | None:
        """The sums over this rank's samples; None if the ranks agreed to stop."""
        sums: dict[str, Tensor] = {}
        batches = iter(self.feed)
        for number in itertools.count() if self.rounds is None else range(self.rounds):
            if number % ASK_EVERY == 0 and any_rank(wants_stop(), self.learner.device):
                return None
            batch = next(batches, NO_MORE)
            if batch is NO_MORE and self.rounds is None:
                break
            # In the last round some ranks may have nothing left.
            if batch is not NO_MORE and batch is not None:
                self._add(sums, batch)
            collect_if_due(self.learner.config.gc_every, number + 1)
        return sums

    def _add(self, sums: dict[str, Tensor], batch: Any) -> None:
        # The ranks may have different numbers of batches, so the model has no wrapper: that may
        # communicate in every forward pass, and ranks would wait for each other for ever.
        with self.learner.autocast():
            measured = self.learner.task.measure(self.learner.model, batch)
        if missing := (set(sums) or {"loss", "count", *measured}) ^ set(measured):
            self.wrong = (
                f"measure() of the task {name_of(self.learner.task)} has no {min(missing)!r} for "
                'every batch; return "loss", "count" and the same other sums each time'
            )
            return
        for name, value in measured.items():
            number = number_on(value, self.learner.device).double()
            sums[name] = sums[name] + number if name in sums else number

    def _over_ranks(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        """All sums in one message; a rank without samples learns the shapes from rank 0.

        Raises StoppedError when the ranks have summed up different things.
        """
        shapes = {name: tuple(value.shape) for name, value in sums.items()}
        for rank, (other, wrong) in enumerate(from_every_rank((shapes, self.wrong))):
            if wrong:
                raise StoppedError(wrong)
            shapes = other if rank == 0 else shapes
            if other and other != shapes:
                raise StoppedError(
                    f"the ranks disagree on what measure() returns: rank 0 has {shapes}, rank "
                    f"{rank} has {other}; return the same sums, of the same shapes, on every rank"
                )
        if not shapes:
            raise StoppedError(self.nothing)
        zero = torch.zeros((), dtype=torch.float64, device=self.learner.device)
        flat = torch.cat(
            [sums.get(name, zero.expand(shape)).flatten() for name, shape in shapes.items()]
        )
        parts = torch.split(sum_over_ranks(flat).cpu(), [math.prod(s) for s in shapes.values()])
        found = zip(shapes.items(), parts, strict=True)
        return {name: part.view(shape) for (name, shape), part in found}

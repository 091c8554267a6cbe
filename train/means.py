"""Refuse, before the first step, a task that returns means where the loop adds up sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .distributed import refuse_if_any
from .task import name_of
from .trainer import Trainer

ALIKE = 0.1  # of two numbers, relative: a mean of two halves is half of their sum

Sums = tuple[float, float]  # of losses, and the count of terms


def is_mean(whole: Sums, one: Sums, other: Sums) -> bool:
    """Whether the loss of a batch is the mean of its halves' losses, and not their sum."""
    (loss, count), (a, n), (b, m) = whole, one, other
    if not math.isclose(count, n + m, rel_tol=ALIKE) or n + m == 0:
        return False  # whatever it counts, it is not the terms
    mean = (n * a + m * b) / (n + m)
    return math.isclose(loss, mean, rel_tol=ALIKE) and not math.isclose(loss, a + b, rel_tol=ALIKE)


def refuse_means(trainer: Trainer, batches: Sequence[Any]) -> None:
    """Raises RefusedError on all ranks where a task returns a mean in place of a sum.

    ``batches`` are a batch and its two halves: the sum of a batch is that of its halves added up.
    The model is in eval mode, where no sample affects the loss of another.
    """
    wrong = ""
    for name in ("loss", "measure"):
        try:
            sums = [_sums_of(name, trainer, batch) for batch in batches]
        except Exception:  # as from a loss that takes no half of a batch: the step will show it
            continue
        if not wrong and is_mean(*sums):
            (whole, count), (one, _), (other, _) = sums
            wrong = (
                f"{name}() of the task {name_of(trainer.task)} returns a mean: {whole:.6g} for "
                f"{count:g} terms, of which the one half has {one:.6g} and the other "
                f'{other:.6g}; return the sum, as reduction="sum" does, and the count'
            )
    refuse_if_any(wrong)


def _sums_of(name: str, trainer: Trainer, batch: Any) -> Sums:
    with trainer.evaluating(), trainer.autocast():
        found = getattr(trainer.task, name)(trainer.bare, batch)
    loss, count = found if name == "loss" else (found["loss"], found["count"])
    return float(loss), float(count)

"""What a task provides; the loop knows nothing else about what it trains.

Three methods make a task: ``model``, ``dataset`` and ``loss``. Everything else is optional, and a
class has it or has it not: there is nothing to inherit from and nothing to register. The parameters
of the class's constructor are flags of the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from . import rng
from .distributed import agree
from .errors import RefusedError


class Samples(Protocol):
    """A map-style data set: item ``i`` depends on ``i`` alone, never on what was read before."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class Task(Protocol):
    """What every task has. It may also have these attributes:

    ``name``              begins the name of the default output directory
    ``unit``              what loss sum divided by count is called, such as "bits per byte"
    ``counted``           what the count counts, such as "bytes"
    ``flops_per_sample``  floating-point operations of a forward and a backward pass
    ``defaults``          a dict of flags of the loop, such as {"lr": 5e-5}, on the class
    """

    def model(self) -> nn.Module:
        """A fresh model on the CPU; its weights come from torch's default generator alone."""
        ...

    def dataset(self, split: str) -> Samples:
        """The samples of the split "train" or "validation"; no sample is in both.

        Others, such as "test", are asked for by ``--eval-splits`` alone.
        """
        ...

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor | float]:
        """The SUM of the losses of a collated batch and the COUNT of terms in it, both 0-d.

        Sums and counts of several ranks can be added; means cannot, when batches are uneven. The
        count may be a plain number, such as ``len(batch)``.
        ``model`` is called exactly once, because it may be wrapped for data-parallel training.
        """
        ...


@runtime_checkable
class Describing(Protocol):
    def describe(self) -> str:
        """One line on the data, with whatever identifies them; a resumed run must have the same."""
        ...


@runtime_checkable
class Preparing(Protocol):
    def prepare(self, directory: Path) -> None:
        """Work that one process does for all, such as tokenizing, before anything else is asked.

        Rank 0 calls it alone, the others wait; what it leaves in ``directory`` all of them see.
        """
        ...

    def prepared(self, directory: Path) -> None:
        """Take up what ``prepare`` left; every rank calls it."""
        ...


@runtime_checkable
class Collating(Protocol):
    def collate(self, samples: list[Any]) -> Any:
        """A batch of samples, instead of torch's default_collate."""
        ...


@runtime_checkable
class Optimizing(Protocol):
    def optimizer(self, model: nn.Module, lr: float) -> torch.optim.Optimizer:
        """An optimizer instead of AdamW, of any parameters, in groups with rates of their own.

        ``lr`` is that of the flag. At every step the loop sets each group's rate to the share of
        it that the schedule says.
        """
        ...


@runtime_checkable
class Measuring(Protocol):
    def measure(self, model: nn.Module, batch: Any) -> dict[str, Tensor | float]:
        """Sums over a validation batch, instead of the loss: "loss", "count", and what else.

        They are added up over all batches and ranks, each of a shape of its own, such as (classes,
        classes) for a confusion matrix.
        """
        ...

    def report(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """Numbers to log, from the sums over all validation samples."""
        ...


@runtime_checkable
class Showing(Protocol):
    def show(self, sums: Mapping[str, Tensor]) -> str:
        """A table for a person, from the sums over all validation samples, at the end of a run."""
        ...


@runtime_checkable
class Sampling(Protocol):
    def sample(self, model: nn.Module, seed: int) -> str:
        """A short text that shows what the model does, the same for the same weights and seed."""
        ...


@runtime_checkable
class Exporting(Protocol):
    def export(self, model: nn.Module, directory: Path) -> None:
        """Write the trained model in the form that its users expect, below ``directory``."""
        ...


def name_of(task: Task) -> str:
    """What the task is called."""
    return str(getattr(task, "name", type(task).__name__.lower()))


def unit_of(task: Task) -> str:
    """What a loss is measured in, with a space before it; nothing if the task does not say."""
    unit = getattr(task, "unit", "")
    return f" {unit}" if unit else ""


def description_of(task: Task, seed: int) -> str:
    """One line on the data."""
    if isinstance(task, Describing):
        return task.describe()
    train, validation = (len(samples_of(task, split, seed)) for split in ("train", "validation"))
    return f"{train:,} samples to train on, {validation:,} held out"


def samples_of(task: Task, split: str, seed: int) -> Samples:
    """The samples of a split, made with generators that are seeded alike for all ranks and splits.

    So a random split into two is the same one for both. Raises RefusedError where there are no
    samples that can be counted, or the ranks have different numbers of them.
    """
    rng.seed_alike(seed)
    samples = task.dataset(split)
    if not hasattr(samples, "__len__") or len(samples) == 0:
        count = "is empty" if hasattr(samples, "__len__") else "has no length"
        raise RefusedError(
            f"the data set {split!r} of the task {name_of(task)} {count}; give it samples that "
            "len() counts",
            shared=True,
        )
    agree(
        {f"the length of the data set {split!r}": len(samples)},
        "dataset() has to return all samples on every rank, for the loop shares them out",
    )
    return samples

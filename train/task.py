"""The hooks that a task provides; the loop knows nothing else about a task.

``Task`` has a default for every hook but three: ``model``, ``dataset`` and ``loss``. A class that
does not inherit from it is given those defaults. The parameters of the class's constructor are
flags of the command line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from .errors import shared_refusal

T = TypeVar("T")


class Samples(Protocol):
    """A map-style data set: item ``i`` depends on ``i`` alone, never on what was read before.

    An IterableDataset is accepted too; ``streamed`` has the rules for it.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class Task:
    """A model, its loss, and the samples to train it on; every public attribute here is a hook."""

    #: begins the name of the default output directory; by default the class's name
    name: str = ""
    #: what loss sum divided by count is called, such as "bits per byte"
    unit: str = ""
    #: what the count counts, such as "bytes"
    counted: str = ""
    #: whether ``model()`` has trained weights, so that ``--eval-only`` needs no others
    pretrained: bool = False
    #: the origin of the weights in words, which is printed after ``model()`` was called
    origin: str = ""
    #: flags of the loop, such as {"lr": 5e-5}, on the class
    defaults: ClassVar[Mapping[str, Any]] = {}

    def model(self) -> nn.Module:
        """Return a new model on the CPU; its weights come from torch's default generator alone."""
        raise NotImplementedError

    def dataset(self, split: str) -> Samples:
        """Return the samples of the split "train" or "validation"; no sample is in both.

        Only ``--eval-splits`` asks for other splits, such as "test".
        """
        raise NotImplementedError

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor | float]:
        """Return the SUM of the losses of a collated batch and the COUNT of terms in it, both 0-d.

        Sums and counts of several ranks can be added; means cannot, when batches are uneven. The
        count may be a plain number, such as ``len(batch)``. ``model`` is what ``model()`` made, on
        any number of ranks; it may be called several times, or by methods and parts of its own.
        """
        raise NotImplementedError

    def describe(self) -> str:
        """Return a line that describes and identifies the data; a resumed run must have the same.

        By default the numbers of samples.
        """
        return ""

    def prepare(self, directory: Path) -> None:
        """Do the work that one process does for all, such as tokenizing, before other hooks run.

        Rank 0 alone calls it, and the others wait. All ranks can read what it writes to
        ``directory``.
        """

    def prepared(self, directory: Path) -> None:
        """Load what ``prepare`` wrote; every rank calls it."""

    def lengths(self, samples: Samples) -> Sequence[int]:
        """Return the tokens of each training sample; samples of like lengths share a step.

        They are an array or a memory map of whole numbers; the ranks of a node share a map.
        """
        raise NotImplementedError

    def collate(self, samples: list[Any]) -> Any:
        """Return a batch of samples; by default torch's default_collate makes it."""
        return default_collate(samples)

    def optimizer(self, model: nn.Module, lr: float) -> torch.optim.Optimizer | None:
        """Return an optimizer of any parameters, in groups with rates of their own; None for AdamW.

        ``lr`` is that of the flag. At every step the loop sets each group's rate to the schedule's
        share of it.
        """
        return None

    def measure(self, model: nn.Module, batch: Any) -> Mapping[str, Tensor | float]:
        """Return sums over a validation batch: "loss", "count", and others that ``report`` needs.

        They are added up over all batches and ranks, each of a shape of its own, such as (classes,
        classes) for a confusion matrix. By default what ``loss`` returns.
        """
        loss, count = self.loss(model, batch)
        return {"loss": loss, "count": count}

    def report(self, sums: Mapping[str, Tensor]) -> Mapping[str, float | Tensor]:
        """Return numbers to log, from the sums over all validation samples; by default none."""
        return {}

    def show(self, sums: Mapping[str, Tensor]) -> str:
        """Return a table to print after a run, from the sums over all samples of a split."""
        return ""

    def state_dict(self) -> Mapping[str, Any]:
        """Return the state that the task itself changes during the run; by default none.

        It holds tensors, numbers, texts and containers of them. A checkpoint has that of rank 0.
        """
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that ``state_dict`` returned; every rank calls it."""

    def sample(self, model: nn.Module, seed: int) -> str:
        """Return a short example of the model's output, the same for the same weights and seed."""
        return ""

    def export(self, model: nn.Module, directory: Path) -> None:
        """Write the trained model in the form that its users expect, below ``directory``."""


HOOKS = tuple(name for name in vars(Task) if not name.startswith("_"))
NEEDED = ("model", "dataset", "loss")
# Hooks that nobody would notice, or that could not work, without one of some others.
TOGETHER = (
    ("measure", ("report", "show")),
    ("prepare", ("prepared",)),
    ("prepared", ("prepare",)),
    ("state_dict", ("load_state_dict",)),
    ("load_state_dict", ("state_dict",)),
)


def complete(cls: type) -> None:
    """Give a task's class the defaults of the hooks that it does not have.

    Raises RefusedError when it lacks a hook that has no default, or that goes with one it has.
    """
    for name in HOOKS:
        if not hasattr(cls, name):
            setattr(cls, name, vars(Task)[name])
    needed = [name for name in NEEDED if not has(cls, name)]
    for name, others in TOGETHER:
        if has(cls, name) and not any(has(cls, other) for other in others):
            needed.append(others[0])
    if needed:
        raise shared_refusal(
            f"--task: the class {cls.__name__} has no {needed[0]}(); write one, as docs/train.md "
            "shows"
        )


def has(task: object, name: str) -> bool:
    """Whether a task, or a class of tasks, has a hook of its own in place of the default."""
    hook = getattr(task, name)
    return getattr(hook, "__func__", hook) is not vars(Task)[name]


def split_of(splits: Mapping[str, T], name: str) -> T:
    """The split of this name. Raises RefusedError when a task has no such split."""
    if name not in splits:
        raise shared_refusal(
            f"--eval-splits: there is no split {name!r}; use some of {', '.join(splits)}"
        )
    return splits[name]


def name_of(task: Task) -> str:
    """The name of a task; by default its class's name in lower case."""
    return str(task.name or type(task).__name__.lower())


def unit_of(task: Task) -> str:
    """The unit of a loss, with a space before it; "" if the task names none."""
    return f" {task.unit}" if task.unit else ""

"""What a task provides; the loop knows nothing else about what it trains."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn


class Samples(Protocol):
    """A map-style data set: item ``i`` depends on ``i`` alone, never on what was read before."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class Task(Protocol):
    """Four answers and two words; a class that has them can be trained.

    ``name`` begins the name of the default output directory; ``unit`` is what one unit of
    ``loss`` sum divided by count is called, such as "bits per byte".
    """

    name: str
    unit: str

    def describe(self) -> str:
        """One line on the data, with whatever identifies them."""
        ...

    def model(self) -> nn.Module:
        """A fresh model on the CPU; its weights come from torch's default generator alone."""
        ...

    def dataset(self, split: str) -> Samples:
        """The samples of the split "train" or "validation"; no sample is in both."""
        ...

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """The SUM of the losses of a collated batch and the COUNT of terms in it, both 0-d.

        Sums and counts of several ranks can be added; means cannot, when batches are uneven.
        ``model`` is called exactly once, because it may be wrapped for data-parallel training.
        """
        ...


@runtime_checkable
class Sampling(Protocol):
    """Optional: a task that can show what its model does."""

    def sample(self, model: nn.Module, seed: int) -> str:
        """A short text for a person to read, the same for the same weights and seed."""
        ...

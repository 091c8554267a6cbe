"""Precision, recall and F1 from a confusion matrix; every count in it may be a sum over ranks.

The matrix is of shape (classes, classes): row i, column j counts the samples of class i that were
taken for class j. The score of a class without samples or predictions is zero, as with
scikit-learn's ``zero_division=0``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..task import Task

LARGEST_SHOWN = 25  # classes in a printed matrix


class Classifier(Task):
    """A task that predicts the class of each sample; a subclass has the model and the names."""

    unit = "nats"

    def _names(self) -> Sequence[str]:
        """The names of the classes."""
        raise NotImplementedError

    def _logits(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """Logits of shape (samples, classes), and the classes of shape (samples,), int64."""
        logits: Tensor = model(batch[0])
        return logits, batch[1]

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        logits, truth = self._logits(model, batch)
        return F.cross_entropy(logits, truth, reduction="sum"), torch.ones_like(truth).sum()

    def measure(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        logits, truth = self._logits(model, batch)
        return {
            "loss": F.cross_entropy(logits, truth, reduction="sum"),
            "count": torch.ones_like(truth).sum(),
            "confusion": confusion(truth, logits.argmax(dim=1), len(self._names())),
        }

    def report(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        return report(sums["confusion"], self._names())

    def show(self, sums: Mapping[str, Tensor]) -> str:
        return show(sums["confusion"], self._names())


def confusion(truth: Tensor, taken: Tensor, classes: int) -> Tensor:
    """The confusion matrix, int64, of two int64 tensors of shape (samples,)."""
    return torch.bincount(truth * classes + taken, minlength=classes**2).view(classes, classes)


def per_class(matrix: Tensor) -> dict[str, Tensor]:
    """Precision, recall, F1 and support, each of shape (classes,), in double precision."""
    matrix = matrix.double()
    right, support, taken = matrix.diagonal(), matrix.sum(dim=1), matrix.sum(dim=0)
    return {
        "precision": _share(right, taken),
        "recall": _share(right, support),
        "f1": _share(2 * right, support + taken),
        "support": support,
    }


def _share(part: Tensor, whole: Tensor) -> Tensor:
    return torch.where(whole > 0, part / whole.clamp(min=1), torch.zeros_like(part))


def report(matrix: Tensor, names: Sequence[str]) -> dict[str, float]:
    """Accuracy, then each score as macro and weighted mean, then for each class by its name.

    A macro mean is over the classes that occur, in the truth or in the predictions.
    """
    scores = per_class(matrix)
    support = scores.pop("support")
    occurring = (support + matrix.sum(dim=0)) > 0
    numbers = {"accuracy": float(matrix.diagonal().sum() / matrix.sum())}
    for name, values in scores.items():
        numbers[f"macro_{name}"] = float(values[occurring].mean())
        numbers[f"weighted_{name}"] = float((values * support).sum() / support.sum())
    for name, values in scores.items():
        for label, value in zip(names, values.tolist(), strict=True):
            numbers[f"{name}/{label}"] = value
    return numbers


def show(matrix: Tensor, names: Sequence[str]) -> str:
    """A table of the scores of each class, and the matrix where it is small enough to read."""
    scores = per_class(matrix)
    names = [" ".join(name.splitlines()) for name in names]
    wide = max(map(len, names))
    lines = [f"{'class':{wide}}  precision  recall     F1  samples"]
    for row in zip(names, *(values.tolist() for values in scores.values()), strict=True):
        lines.append("{:{wide}}  {:9.3f}  {:6.3f}  {:5.3f}  {:7.0f}".format(*row, wide=wide))
    if len(names) <= LARGEST_SHOWN:
        cell = max(3, len(str(int(matrix.max()))))
        lines.append(f"\n{'':{wide}}  a row: what a class was taken for, in the order of the rows")
        for label, counts in zip(names, matrix.long().tolist(), strict=True):
            lines.append(f"{label:{wide}}  " + " ".join(f"{n:{cell}}" for n in counts))
    return "\n".join(lines)

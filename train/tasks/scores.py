"""Precision, recall and F1 from a confusion matrix; every count in it may be a sum over ranks.

The matrix is of shape (classes, classes): row i, column j counts the samples of class i that were
taken for class j. What has no samples or no predictions counts as zero, as scikit-learn has it with
``zero_division=0``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

LARGEST_SHOWN = 25  # classes in a printed matrix


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

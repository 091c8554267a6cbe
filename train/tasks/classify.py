"""Classify pieces of source code by the package of the standard library that they are from.

Real text that every Python has: the packages with enough files are the classes, and a file is
either trained on or held out, as a whole. A small convolutional network reads windows of bytes.
"""

from __future__ import annotations

import functools
import hashlib
import platform
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config import flag, whole
from ..errors import shared_refusal
from ..task import split_of
from . import scores

BYTES = 256
SPLITS = ("train", "validation", "test")
HELD_OUT = 5  # one file in so many
# Not the library itself: what was installed into it, its tests, and generated data.
SKIPPED = ("site-packages", "dist-packages", "test", "tests", "idle_test", "pydoc_data")


class Pieces:
    """Pairs (bytes of shape (window,), class), int64, one after the other without overlap."""

    def __init__(self, texts: Tensor, labels: Tensor, window: int) -> None:
        """``texts`` is of shape (samples * window,), uint8; ``labels`` of shape (samples,)."""
        self.texts = texts.view(-1, window)
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.texts[index].long(), self.labels[index]


class ConvNet(nn.Module):
    """Byte values (batch, window), int64, to logits (batch, classes)."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.bytes = nn.Embedding(BYTES, width)
        self.first = nn.Conv1d(width, 2 * width, kernel_size=5, padding=2)
        self.second = nn.Conv1d(2 * width, 2 * width, kernel_size=5, padding=2)
        self.out = nn.Linear(2 * width, classes)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.bytes(ids).transpose(1, 2)
        x = F.max_pool1d(F.relu(self.first(x)), 2)
        x = F.relu(self.second(x)).amax(dim=2)
        logits: Tensor = self.out(x)
        return logits


@dataclass(frozen=True)
class Classify(scores.Classifier):
    """A convolutional network on windows of source code.

    One file in five is held out: in turn to validate with, and to test.
    """

    window: int = flag(128, whole(16, 4096), "N", "bytes the model looks at (%(default)s)")
    width: int = flag(32, whole(1, 4096), "N", "of the byte embedding (%(default)s)")
    files: int = flag(10, whole(2), "N", "fewest files of a package that is a class (%(default)s)")

    name = "classify"
    counted = "pieces"
    defaults: ClassVar = {"batch_size": 32, "steps": 400, "lr": 3e-3, "eval_every": 200}

    @functools.cached_property
    def packages(self) -> dict[str, list[Path]]:
        """The files of each class, both in the order of their names."""
        root = Path(sysconfig.get_path("stdlib"))
        packages: dict[str, list[Path]] = {}
        for path in sorted(root.glob("*/**/*.py")):
            parts = path.relative_to(root).parts
            if not set(parts) & set(SKIPPED):
                packages.setdefault(parts[0], []).append(path)
        classes = {name: paths for name, paths in packages.items() if len(paths) >= self.files}
        if len(classes) < 2:
            raise shared_refusal(
                f"{root} has {len(classes)} packages of {self.files} files; use a lower --files"
            )
        return classes

    @functools.cached_property
    def splits(self) -> dict[str, Pieces]:
        """The pieces of each split; what is left at the end of a file is not used."""
        texts = {split: bytearray() for split in SPLITS}
        labels: dict[str, list[int]] = {split: [] for split in SPLITS}
        for label, paths in enumerate(self.packages.values()):
            for number, path in enumerate(paths):
                held = number % HELD_OUT == 0
                split = ("validation", "test")[number // HELD_OUT % 2] if held else "train"
                text = path.read_bytes()
                count = len(text) // self.window
                texts[split] += text[: count * self.window]
                labels[split] += count * [label]
        return {
            split: Pieces(
                torch.frombuffer(text, dtype=torch.uint8), torch.tensor(labels[split]), self.window
            )
            for split, text in texts.items()
        }

    def describe(self) -> str:
        everything = bytes(torch.cat([p.texts for p in self.splits.values()]).flatten().numpy())
        train, validation, test = map(len, self.splits.values())
        return (
            f"source of Python {platform.python_version()}, "
            f"sha256 {hashlib.sha256(everything).hexdigest()[:12]}: {len(self.packages)} packages, "
            f"{train:,} pieces to train on, {validation:,} to validate with, {test:,} to test"
        )

    def model(self) -> ConvNet:
        return ConvNet(len(self.packages), self.width)

    def dataset(self, split: str) -> Pieces:
        return split_of(self.splits, split)

    def _names(self) -> list[str]:
        return list(self.packages)

"""Tokens that one process made and all others read: arrays in files, mapped into memory."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

FOLDER = "prepared"
SOURCE = "source.json"


def is_made(directory: Path, source: dict[str, Any]) -> bool:
    """Whether the arrays were made from this source already, in a run that now goes on."""
    file = directory / FOLDER / SOURCE
    return file.exists() and json.loads(file.read_text(encoding="utf-8")) == source


def begin(directory: Path) -> None:
    """Forget what the arrays were made from, until all of them are there."""
    (directory / FOLDER).mkdir(exist_ok=True)
    (directory / FOLDER / SOURCE).unlink(missing_ok=True)


def finish(directory: Path, source: dict[str, Any]) -> None:
    """Note what the arrays were made from, when all of them are there."""
    (directory / FOLDER / SOURCE).write_text(json.dumps(source), encoding="utf-8")


def source_of(options: dict[str, Any], *files: str | None) -> dict[str, Any]:
    """What decides the arrays: the task's options, and size and time of its files."""
    stats = {file: Path(file).stat() for file in files if file and Path(file).exists()}
    return {**options, "files": {f: [s.st_size, s.st_mtime] for f, s in stats.items()}}


def write_tokens(directory: Path, split: str, texts: Iterable[list[int]]) -> None:
    """The tokens of all texts of a split, one after the other, and where each text ends."""
    folder = directory / FOLDER
    pieces = [np.asarray(text, dtype=np.int32) for text in texts]
    np.save(folder / f"{split}-tokens.npy", np.concatenate(pieces))
    np.save(folder / f"{split}-ends.npy", np.cumsum([len(piece) for piece in pieces]))


class Mapped:
    """An array that was written, mapped: what is read of it becomes a tensor.

    Another process gets the name of the file, and maps it as well.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        # A change of it would stay in this process.
        self.array = torch.from_numpy(np.load(file, mmap_mode="c"))

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, place: int | slice) -> Tensor:
        return self.array[place]

    def __reduce__(self) -> tuple[type[Mapped], tuple[str]]:
        return Mapped, (self.file,)


def read(directory: Path, name: str) -> Mapped:
    """An array that was written."""
    return Mapped(str((directory / FOLDER / f"{name}.npy").resolve()))

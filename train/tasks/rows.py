"""Rows of local data, and the arrays of tokens that are made of them.

Rows are JSON lines, CSV, plain text, or a data set saved by Hugging Face datasets. One process
makes the tokens of all rows; the others map them into memory.
"""

from __future__ import annotations

import csv
import importlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import RefusedError

HELD_OUT = 10  # one row in so many, where no file holds validation data
SPLITS = ("train", "validation", "test")
SPLIT_TEST = "its split test"
VALIDATION_NAMES = ("validation", "valid", "dev")

Row = Mapping[str, Any]


def read_splits(data: str, validation: str | None, test: str | None) -> dict[str, list[Row]]:
    """The rows to train on, to validate with, and to test if there are any.

    Those to validate with are from a second file, or the test split of a saved data set that has no
    other, or one row in ten of the first. Raises RefusedError when a file cannot be read or a split
    is empty.
    """
    splits = _read_saved(Path(data)) if Path(data).is_dir() else {"train": _read(Path(data))}
    if validation is not None:
        splits["validation"] = _read(Path(validation))
    if "test" in splits and "validation" not in splits:
        splits["validation"] = splits.pop("test")
    if test is not None:
        splits["test"] = _read(Path(test))
    if "validation" not in splits:
        rows = splits["train"]
        splits["validation"] = rows[::HELD_OUT]
        splits["train"] = [row for i, row in enumerate(rows) if i % HELD_OUT]
    for name, rows in splits.items():
        if not rows:
            raise RefusedError(f"--data: {data} leaves no rows for {name}; {_more_rows(data)}")
    return splits


def _more_rows(data: str) -> str:
    """What gives more rows: of a text, lines alone do not."""
    is_text = Path(data).is_file() and Path(data).suffix.lower() not in (".csv", ".jsonl", ".json")
    return "put an empty line between two texts" if is_text else "type a larger file"


def _read(path: Path) -> list[Row]:
    kind = path.suffix.lower()
    try:
        # Spreadsheets put a byte order mark before the first column's name.
        with path.open(newline="" if kind == ".csv" else None, encoding="utf-8-sig") as file:
            if kind == ".csv":
                csv.field_size_limit((1 << 31) - 1)  # in place of 131,072 characters
                read: list[Any] = list(csv.DictReader(file))
            elif kind in (".jsonl", ".json"):
                read = [json.loads(line) for line in file if line.strip()]
            else:
                return [{"text": part} for part in file.read().split("\n\n") if part.strip()]
    except (OSError, ValueError, csv.Error) as error:
        raise RefusedError(f"--data: cannot read {path}: {error}") from error
    for number, row in enumerate(read, start=1):
        if not isinstance(row, dict) or None in row:  # where csv puts values without a name
            raise RefusedError(
                f"--data: row {number} of {path} has values that no column is named for; in CSV "
                'put a text with a comma in "quotes", and in JSON write one {object} on each line'
            )
    return read


def _read_saved(path: Path) -> dict[str, list[Row]]:
    datasets = importlib.import_module("datasets")
    try:
        saved = datasets.load_from_disk(str(path))
    except FileNotFoundError as error:
        raise RefusedError(f"--data: {path} is no saved data set: {error}") from error
    if not isinstance(saved, datasets.DatasetDict):
        return {"train": list(saved)}
    if "train" not in saved:
        raise RefusedError(f"--data: {path} has no split 'train'; it has {', '.join(saved)}")
    held_out = next((name for name in VALIDATION_NAMES if name in saved), "")
    names = {"train": "train", "validation": held_out, "test": "test"}
    return {split: list(saved[name]) for split, name in names.items() if name in saved}


def fill(flag: str, template: str, row: Row) -> str:
    """A text from the columns of a row: "{instruction} {output}", or the name of one column.

    Raises RefusedError with the ``flag`` that gave the template when there is no such column.
    """
    known = {name: value for name, value in row.items() if value is not None}
    try:
        return template.format_map(known) if "{" in template else str(known[template])
    except KeyError as error:
        raise RefusedError(
            f"{flag}: there is no column {error}; the columns are {', '.join(known)}; "
            "type one of them, or leave rows out that have nothing there"
        ) from error
    except (ValueError, IndexError) as error:
        raise RefusedError(
            f"{flag}: {template!r} is no template: {error}; type one such as '{{text}}'"
        ) from error


FOLDER = "prepared"  # below the run's directory
SOURCE = "source.json"


def is_prepared(directory: Path, source: dict[str, Any]) -> bool:
    """Whether the arrays were made from this source already, in a run that now goes on."""
    file = directory / FOLDER / SOURCE
    return file.exists() and json.loads(file.read_text(encoding="utf-8")) == source


def begin_preparing(directory: Path) -> None:
    """Forget what the arrays were made from, until all of them are there."""
    (directory / FOLDER).mkdir(exist_ok=True)
    (directory / FOLDER / SOURCE).unlink(missing_ok=True)
    for file in (directory / FOLDER).glob("*.npy"):
        file.unlink()  # as of a split that there is no more


def finish_preparing(directory: Path, source: dict[str, Any]) -> None:
    """Note what the arrays were made from, when all of them are there."""
    (directory / FOLDER / SOURCE).write_text(json.dumps(source), encoding="utf-8")


def origin_of_held_out(data: str, validation: str | None) -> str:
    """Where the rows to validate with come from, for a line on the run."""
    if validation is not None:
        return f"of {validation}"
    listed = Path(data) / "dataset_dict.json"  # as save_to_disk writes it for several splits
    saved = json.loads(listed.read_text(encoding="utf-8"))["splits"] if listed.exists() else []
    for name in (*VALIDATION_NAMES, "test"):
        if name in saved:
            return f"its split {name}"
    return f"one row in {HELD_OUT}"


def read_held_out(directory: Path) -> str:
    """What ``origin_of_held_out`` said when the arrays were made."""
    source = json.loads((directory / FOLDER / SOURCE).read_text(encoding="utf-8"))
    return str(source["held_out"])


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


def prepared_splits(directory: Path) -> list[str]:
    """The splits that tokens were written of."""
    return [one for one in SPLITS if (directory / FOLDER / f"{one}-tokens.npy").exists()]


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


def read_prepared(directory: Path, name: str) -> Mapped:
    """An array that was written."""
    return Mapped(str((directory / FOLDER / f"{name}.npy").resolve()))

"""Rows of local data: JSON lines, CSV, plain text, or a data set saved by Hugging Face datasets."""

from __future__ import annotations

import csv
import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import RefusedError

HELD_OUT = 10  # one row in so many, where no file holds validation data
VALIDATION_NAMES = ("validation", "valid", "dev", "test")

Row = Mapping[str, Any]


def read_splits(data: str, validation: str | None) -> dict[str, list[Row]]:
    """The rows to train on and to validate with, from a second file or out of the first.

    Raises RefusedError when a file cannot be read or a split is empty.
    """
    splits = _read_saved(Path(data)) if Path(data).is_dir() else {"train": _read(Path(data))}
    if validation is not None:
        splits["validation"] = _read(Path(validation))
    if "validation" not in splits:
        rows = splits["train"]
        splits["validation"] = rows[::HELD_OUT]
        splits["train"] = [row for i, row in enumerate(rows) if i % HELD_OUT]
    for name, rows in splits.items():
        if not rows:
            raise RefusedError(f"--data: {data} leaves no rows for {name}; type a larger file")
    return splits


def _read(path: Path) -> list[Row]:
    try:
        if path.suffix == ".csv":
            with path.open(newline="", encoding="utf-8") as file:
                return list(csv.DictReader(file))
        text = path.read_text(encoding="utf-8")
        if path.suffix in (".jsonl", ".json"):
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        return [{"text": part} for part in text.split("\n\n") if part.strip()]
    except (OSError, ValueError) as error:
        raise RefusedError(f"--data: cannot read {path}: {error}") from error


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
    splits = {"train": list(saved["train"])}
    for name in VALIDATION_NAMES:
        if name in saved:
            splits["validation"] = list(saved[name])
            break
    return splits


def fill(flag: str, template: str, row: Row) -> str:
    """A text from the columns of a row: "{instruction} {output}", or the name of one column.

    Raises RefusedError with the ``flag`` that gave the template when there is no such column.
    """
    try:
        return template.format_map(row) if "{" in template else str(row[template])
    except KeyError as error:
        raise RefusedError(
            f"{flag}: there is no column {error}; the columns are {', '.join(row)}; "
            "type one of them"
        ) from error
    except (ValueError, IndexError) as error:
        raise RefusedError(
            f"{flag}: {template!r} is no template: {error}; type one such as '{{text}}'"
        ) from error

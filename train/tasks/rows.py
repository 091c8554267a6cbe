"""Rows of local data as text, and the arrays of tokens that are made of them.

CSV and JSON are read by Python's strict readers, because those of Hugging Face datasets cut a text
at NUL, make times of texts that look like dates, and keep the last of two columns of one name.
Parquet and saved data sets are read by datasets. One process makes the tokens of all rows; the
others map them into memory.
"""

from __future__ import annotations

import csv
import hashlib
import importlib
import io
import json
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import RefusedError

HELD_OUT = 10  # one row in so many, where no file holds validation data
VALIDATION_NAMES = ("validation", "valid", "dev")
KINDS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet", ".txt")

UNUSABLE = re.compile("^\ufeff|[\ud800-\udfff]")

Row = Mapping[str, Any]


class Rows(NamedTuple):
    """Rows of a file: those in ``places``, which count from 0."""

    file: str
    rows: Any  # a sequence of mappings
    places: Sequence[int]
    classes: Mapping[str, list[str]]  # the names of each column that is a ClassLabel
    broken_lines: int  # rows of CSV with a line break inside quotes

    @classmethod
    def of(cls, file: Path, rows: Any, broken_lines: int = 0) -> Rows:
        """All rows of a file."""
        features = getattr(rows, "features", {})
        classes = {name: f.names for name, f in features.items() if hasattr(f, "int2str")}
        return cls(str(file), rows, range(len(rows)), classes, broken_lines)

    def refusal(self, flag: str, place: int, wrong: str) -> RefusedError:
        """Return an error for a row, which it counts from 1."""
        return RefusedError(f"{flag}: row {place + 1} of {self.file} {wrong}")

    def texts(self, flag: str, template: str) -> Iterator[str]:
        """Yield a text of each row, by a template "{instruction} {output}" or the name of a column.

        Raises RefusedError with the ``flag`` that gave the template where a row lacks a value.
        """
        try:
            fields = [field for _, field, _, _ in Formatter().parse(template) if field is not None]
            for place in self.places:
                row = self.rows[place]
                columns = fields if "{" in template else [template]
                values = {name: self._value(flag, name, row, place) for name in columns}
                yield template.format_map(values) if "{" in template else values[template]
        except (ValueError, IndexError, KeyError, AttributeError) as error:
            raise RefusedError(
                f"{flag}: {template!r} is not a template: {error}; use one such as '{{text}}'"
            ) from error

    def _value(self, flag: str, name: str, row: Row, place: int) -> str:
        if name not in row:
            has = f"has no column {name!r}; the columns are {', '.join(map(repr, row))}"
            raise self.refusal(flag, place, f"{has}; use one of them, or leave the row out")
        value = row[name]
        if name in self.classes and value is not None:
            value = self.classes[name][value] if value >= 0 else None  # -1: it has no class
        text = str(value)
        if value is None or value != value or all(map(_is_invisible, text)):  # NaN is unlike itself
            nothing = f"has nothing in the column {name!r}; fill it in, or leave the row out"
            raise self.refusal(flag, place, nothing)
        if not isinstance(value, (str, int, float)):
            kind = f"has {type(value).__name__} in the column {name!r}"
            raise self.refusal(flag, place, f"{kind}; give it a text or a number")
        if found := UNUSABLE.search(text):
            wrong = (
                f"has {found[0]!a} in the column {name!r}, a byte order mark or half a character"
            )
            raise self.refusal(flag, place, f"{wrong}; write it again as UTF-8")
        return text


def _is_invisible(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Zs", "Zl", "Zp")


Splits = dict[str, Rows]


def read_splits(data: str, validation: str | None, test: str | None) -> tuple[Splits, str]:
    """Read the rows to train on, to validate with, and to test if there are any.

    The rows to validate with are from a second file, or the test split of a saved data set without
    another, or one row in ten of the first file; their origin is returned in words. Raises
    RefusedError when a file cannot be read or a split is empty.
    """
    splits = _read_saved(Path(data)) if Path(data).is_dir() else {"train": _read("data", data)}
    if validation is not None:
        splits["validation"] = _read("validation", validation)
        held_out = f"of {validation}"
    elif "validation" in splits or "test" in splits:
        if "validation" not in splits:
            splits["validation"] = splits.pop("test")
        held_out = f"its split {Path(splits['validation'].file).name}"
    else:
        every = splits["train"]
        splits["validation"] = every._replace(places=every.places[::HELD_OUT])
        trained = [place for place in every.places if place % HELD_OUT]
        splits["train"] = every._replace(places=trained)
        held_out = f"one row in {HELD_OUT}"
    if test is not None:
        splits["test"] = _read("test", test)
    for name, rows in splits.items():
        if not rows.places:
            lines = rows.file.lower().endswith(".txt")
            more = "put an empty line between two texts" if lines else "use a larger file"
            raise RefusedError(f"--data: {data} leaves no rows for {name}; {more}")
    return splits, held_out


def _read(flag: str, name: str) -> Rows:
    path, kind = Path(name), Path(name).suffix.lower()
    if path.is_dir():
        raise RefusedError(f"--{flag}: {path} is a directory; use a file ({', '.join(KINDS)})")
    if kind not in KINDS:
        raise RefusedError(f"--{flag}: {path} is not one of {', '.join(KINDS)}; convert it to one")
    try:
        if kind == ".parquet":
            table = importlib.import_module("pyarrow.parquet").read_table(path)
            return Rows.of(path, importlib.import_module("datasets").Dataset(table))
        content = path.read_bytes()
        text = content.decode("utf-8-sig")  # spreadsheets put a byte order mark first
        if kind in (".csv", ".tsv"):
            return _read_csv(flag, path, text, "," if kind == ".csv" else "\t")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise RefusedError(
            f"--{flag}: line {line} of {path} is not UTF-8: {error.reason}; run iconv -f ENCODING "
            "-t UTF-8, or save it as UTF-8"
        ) from error
    except (OSError, ValueError, KeyError) as error:
        raise RefusedError(f"--{flag}: cannot read {path}: {error}") from error
    except ImportError as error:
        raise RefusedError(f"--{flag}: {path}: {error}; pip install 'spawnlaunch[hf]'") from error
    text = re.sub("\r\n?", "\n", text)
    if kind != ".txt":
        return Rows.of(path, _read_json(flag, path, text))
    parts = re.split(r"\n(?:[ \t]*\n)+", text)
    return Rows.of(path, [{"text": part} for part in parts if part.strip()])


def _read_csv(flag: str, path: Path, text: str, delimiter: str) -> Rows:
    """Read rows of CSV; refuse a quote that is not closed, or that ends before its field does."""
    csv.field_size_limit((1 << 31) - 1)  # in place of 131,072 characters
    rows: list[Row] = []
    broken_lines = 0
    lines = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter)
    try:
        names = next(lines, [])
        if twice := [name for name in names if names.count(name) > 1]:
            raise RefusedError(f"--{flag}: {path} has two columns {twice[0]!r}; rename one of them")
        for fields in filter(None, lines):
            if len(fields) > len(names):
                raise RefusedError(
                    f"--{flag}: row {len(rows) + 1} of {path} has {len(fields)} values for "
                    f'{len(names)} columns; put a text with a {delimiter!r} in "quotes"'
                )
            if fields == names and len(names) > 1:
                raise RefusedError(
                    f"--{flag}: row {len(rows) + 1} of {path} has the names of the columns again; "
                    "leave it out"
                )
            # Where a row is short, its last columns have nothing.
            rows.append(dict(zip(names, fields, strict=False)))
            broken_lines += any("\n" in field or "\r" in field for field in fields)
    except csv.Error as error:
        raise RefusedError(
            f"--{flag}: row {len(rows) + 1} of {path} has a quote that is not closed, or is "
            f'closed inside a value ({error}); write "" for a quote in a quoted value'
        ) from error
    return Rows.of(path, rows, broken_lines)


def _read_json(flag: str, path: Path, text: str) -> list[Row]:
    """Read objects, each on a line, or all in one array."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            raise ValueError("a name is there twice")
        return result

    rows: list[Any] = []
    try:
        if text.lstrip().startswith("["):
            rows = json.loads(text, object_pairs_hook=unique)
        else:
            # Not splitlines, which also splits at characters that may stand in a text.
            for line in filter(str.strip, text.split("\n")):
                rows.append(json.loads(line, object_pairs_hook=unique))
    except (ValueError, RecursionError) as error:
        raise RefusedError(
            f"--{flag}: cannot read row {len(rows) + 1} of {path}: {error}; write one {{object}} "
            "on each line"
        ) from error
    for place, row in enumerate(rows):
        if not isinstance(row, dict):
            raise RefusedError(
                f"--{flag}: row {place + 1} of {path} is not an {{object}} with a name for each "
                "value; write one on each line"
            )
    return rows


def _read_saved(path: Path) -> dict[str, Rows]:
    try:
        datasets = importlib.import_module("datasets")
        saved = datasets.load_from_disk(str(path))
    except Exception as error:  # a broken one raises errors of Arrow, of JSON and of files
        raise RefusedError(
            f"--data: {path} is not a data set that save_to_disk has written: {error}"
        ) from error
    if not isinstance(saved, datasets.DatasetDict):
        return {"train": Rows.of(path, saved)}
    if "train" not in saved:
        raise RefusedError(f"--data: {path} has no split 'train'; it has {', '.join(saved)}")
    held_out = next((name for name in VALIDATION_NAMES if name in saved), "")
    names = {"train": "train", "validation": held_out, "test": "test"}
    return {
        split: Rows.of(path / name, saved[name]) for split, name in names.items() if name in saved
    }


def labels_of(answers: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the distinct training labels, sorted as numbers if all are numbers, else as texts.

    Raises RefusedError where a label is among the held-out answers only, and where two differ only
    in blanks around them, or in how an accent is written.
    """
    labels = set(answers["train"])
    if unknown := set().union(*answers.values()) - labels:
        raise RefusedError(f"--data: the label {min(unknown)!r} is among the held-out answers only")
    by_look: dict[str, str] = {}
    for label in sorted(labels):
        look = unicodedata.normalize("NFC", label.strip())
        if by_look.setdefault(look, label) != label:
            raise RefusedError(
                f"--data: the labels {by_look[look]!a} and {label!a} look alike; make them one"
            )
    is_number = re.compile(r"[+-]?\d+(\.\d+)?", re.ASCII).fullmatch
    # Sorted twice: "1" and "1.0" are equal as numbers.
    return sorted(sorted(labels), key=float if all(map(is_number, labels)) else None)


FOLDER = "prepared"  # below the run's directory
SOURCE = "source.json"
USED = ("train", "validation")  # splits of every run


def fingerprint(*places: str | Path | None) -> dict[str, list[int]]:
    """Size and times of each file, and of each file below a directory; links are followed.

    The time of the last change of a file's record (ctime) cannot be set by a user, so a file that
    is written again with its old size and time is noticed.
    """
    result = {}
    for place in (str(each) for each in places if each):
        below = (os.path.join(at, name) for at, _, names in os.walk(place) for name in names)
        for file in sorted(below) if Path(place).is_dir() else [place]:
            if os.path.exists(file):
                of = os.stat(file)
                result[file] = [of.st_size, of.st_mtime_ns, of.st_ctime_ns]
    return result


def is_prepared(directory: Path, source: dict[str, Any]) -> bool:
    """Whether the arrays were made from this source already, by the run that is resumed."""
    file = directory / FOLDER / SOURCE
    return file.exists() and json.loads(file.read_text(encoding="utf-8"))["source"] == source


def forget(directory: Path) -> None:
    """Remove the note on the source, so that the arrays are made again."""
    (directory / FOLDER / SOURCE).unlink(missing_ok=True)


def begin_preparing(directory: Path) -> None:
    """Remove the arrays and the note on their source, before new ones are made."""
    (directory / FOLDER).mkdir(exist_ok=True)
    forget(directory)
    for file in (directory / FOLDER).glob("*.*"):
        file.unlink()  # such as those of a split that is not there any more


def finish_preparing(
    directory: Path, source: dict[str, Any], facts: dict[str, Any], root: Path
) -> None:
    """Write a note on the source of the arrays, with ``facts`` for ``read_facts``.

    The digest that identifies the data is of labels, arrays, and the names of files below ``root``,
    which may be moved. A test split, which may be added later, is not in it.
    """
    known = [facts.get("labels"), [facts.get("files", {}).get(split) for split in USED]]
    names = json.dumps(known, ensure_ascii=False).replace(f"{root.resolve()}/", "")
    digest = hashlib.sha256(names.encode(errors="surrogatepass"))
    for split in USED:
        for file in sorted((directory / FOLDER).glob(f"{split}-*")):
            with file.open("rb") as opened:
                while piece := opened.read(1 << 20):
                    digest.update(piece)
    text = json.dumps({"source": source, "facts": {**facts, "digest": digest.hexdigest()[:12]}})
    (directory / FOLDER / SOURCE).write_text(text, encoding="utf-8")


def read_facts(directory: Path) -> dict[str, Any]:
    """Read the facts that ``finish_preparing`` wrote."""
    facts: dict[str, Any] = json.loads((directory / FOLDER / SOURCE).read_text(encoding="utf-8"))
    return dict(facts["facts"])


def write(directory: Path, name: str, texts: Iterable[Sequence[int]]) -> None:
    """Write the tokens of all texts, one after the other, and the end of each text."""
    pieces = [np.asarray(text, dtype=np.int32) for text in texts]
    np.save(directory / FOLDER / f"{name}-tokens.npy", np.concatenate(pieces))
    np.save(directory / FOLDER / f"{name}-ends.npy", np.cumsum([len(piece) for piece in pieces]))


class Texts:
    """The tokens of each text, int64, of shape (length,), in files that are mapped."""

    def __init__(self, directory: Path, name: str) -> None:
        folder = (directory / FOLDER).resolve()
        self.tokens, self.ends = (
            np.load(folder / f"{name}-{part}.npy", mmap_mode="r") for part in ("tokens", "ends")
        )

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> Tensor:
        begin = int(self.ends[index - 1]) if index else 0
        return copied(self.tokens[begin : int(self.ends[index])])


def copied(tokens: Any) -> Tensor:
    """A copy of some tokens, int64, of an array or a tensor."""
    numbers = tokens if isinstance(tokens, Tensor) else torch.from_numpy(np.array(tokens))
    return numbers.long()

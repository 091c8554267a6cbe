"""The file of a bench: a JSON value a line, each written as soon as it is known.

    {"bench": {...}}     first: what is measured, where, and with which bindings
    {"sample": {...}}    a sample of all ranks: Taken
    {"found": {...}}     last: the comparisons and the advice, for other programs

A process that is killed leaves all lines but the one that it was writing. All else is made of
`Taken`: tables, verdicts, pictures.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from spawnlaunch.base import errors
from spawnlaunch.bench import effort
from spawnlaunch.workers import files

FORMAT = 6
BENCH, SAMPLE, FOUND = "bench", "sample", "found"

Line = tuple[str, dict[str, Any]]  # its kind and its value


class Taken(NamedTuple):
    """A sample of one arm, from all ranks."""

    workload: str
    round: int  # from 0
    arm: str
    values: tuple[dict[str, float], ...]  # of each rank, by series; empty: it printed no metric
    efforts: tuple[effort.Effort | None, ...] = ()  # of each rank
    error: str = ""  # why there is none; then the arm is out of this workload
    mark: str = ""  # what disturbed it
    steps: tuple[dict[str, list[float]], ...] = ()  # of each rank, by series: seconds of each step
    at_s: float = 0.0  # since the bench began


class Recorder:
    """Writes a file line by line. Raises UsageError where it cannot be written."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._descriptor = files.opened(path, os.O_WRONLY | os.O_TRUNC)
        except OSError as error:
            raise unwritable(path, error) from None

    def write(self, kind: str, said: dict[str, Any]) -> None:
        """Write one line, which is on the disk when this returns."""
        data = (json.dumps({kind: said}, allow_nan=False) + "\n").encode()
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
            if os.path.isfile(self.path):
                os.fsync(self._descriptor)
        except OSError as error:
            raise unwritable(self.path, error) from None

    def take(self, taken: Taken) -> None:
        """Write a sample."""
        self.write(SAMPLE, as_line(taken))


def unwritable(path: str, error: OSError) -> errors.UsageError:
    """The error for a file of the bench that cannot be written."""
    return errors.UsageError(f"cannot write {path}: {error.strerror}; type another name")


def as_line(taken: Taken) -> dict[str, Any]:
    """The fields of a sample that differ from the defaults, for its line."""
    known = {
        name: value
        for name, value in taken._asdict().items()
        if value != Taken._field_defaults.get(name, None)
    }
    return {**known, "efforts": [effort.kept(each) for each in taken.efforts]}


def lines(path: str) -> Iterator[Line]:
    """Yield the lines of a file, without an incomplete last one. Raises ValueError and OSError."""
    for text in Path(path).read_text(encoding="utf-8").splitlines(keepends=True):
        if not text.endswith("\n"):
            return
        ((kind, said),) = json.loads(text).items()
        yield kind, said


def taken_of(said: dict[str, Any]) -> Taken:
    """Read a sample from its line."""
    efforts = tuple(effort.read(each) for each in said["efforts"])
    known = {name: tuple(said.get(name, ())) for name in ("values", "steps")}
    return Taken(**{**said, **known, "efforts": efforts})


def series_of(taken: Sequence[Taken], names: Iterable[str], what: str = "values") -> dict[str, Any]:
    """The values, or steps, of each rank in each round, by series and arm.

    Rounds that not all of these arms have are left out.
    """
    cells = {(each.round, each.arm): getattr(each, what) for each in taken if not each.error}
    rounds = sorted({number for number, _ in cells})
    whole = [n for n in rounds if all((n, name) in cells for name in names)]
    if not whole or not names:
        return {}
    known = dict.fromkeys(key for ranks in cells.values() for rank in ranks for key in rank)
    return {
        series: {
            name: [[rank.get(series) for rank in cells[n, name]] for n in whole] for name in names
        }
        for series in known
    }

"""The result of a bench, and its file, of which --show makes it again.

The file has a JSON value a line, each written as soon as it is known:

    {"bench": {...}}     first: what is measured, where, and with which bindings
    {"sample": {...}}    a sample of all ranks: Taken
    {"summary": {...}}   last: the comparisons and the advice, for other programs

A process that is killed leaves all lines but the one that it was writing. All else is made of
`Taken`: tables, verdicts, pictures.
"""

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from spawnlaunch.base import errors
from spawnlaunch.bench import effort, stats
from spawnlaunch.bench.workloads import Workload
from spawnlaunch.workers import files

FORMAT = 8
BENCH, SAMPLE, SUMMARY = "bench", "sample", "summary"
MEAN = "geometric mean"  # the series that sums up several

Line = tuple[str, dict[str, Any]]  # its kind and its value

# For each arm, for each round, the value of each rank; None: the rank printed no metric.
Samples = dict[str, list[list[float | None]]]


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


class BoundRank(NamedTuple):
    """A rank and its binding. CPU and node lists are the kernel's notation; empty: not bound."""

    rank: int
    host: str
    local_rank: int
    device: str  # "" without one
    cpus: str
    memory_nodes: str
    threads: int
    locality: str


class Arm(NamedTuple):
    """An arm that was measured."""

    name: str
    flag: str  # what to type for it, as on the node of rank 0
    ranks: tuple[BoundRank, ...]  # in their order
    beside: str = ""  # its settings that no flag of the launcher gives; then it is not advised


class Measured(NamedTuple):
    """A workload and its samples."""

    workload: Workload
    names: tuple[str, ...]  # of the arms
    taken: list[Taken]  # in the order of time

    @property
    def failed(self) -> dict[str, str]:
        """The arms that failed in this workload, and why."""
        return {each.arm: each.error for each in self.taken if each.error}

    @property
    def there(self) -> list[str]:
        """The arms that did not fail."""
        return [name for name in self.names if name not in self.failed]

    @property
    def series(self) -> dict[str, Samples]:
        """The samples, by the name of the series; a single series has the name ""."""
        return series_of(self.taken, self.there)

    @property
    def rounds(self) -> int:
        """The number of counted rounds."""
        return next((len(its) for arms in self.series.values() for its in arms.values()), 0)

    @property
    def disturbed(self) -> Counter[str]:
        """The causes that disturbed samples, with the number of samples of each."""
        return Counter(each.mark for each in self.taken if each.mark)

    def efforts(self, arm: str) -> list[list[effort.Effort]]:
        """The efforts of the samples of an arm, by rank and round."""
        counted = [each.efforts for each in self.taken if each.arm == arm]
        ranks = max(map(len, counted), default=0)
        return [[its[r] for its in counted if r < len(its) and its[r]] for r in range(ranks)]  # type: ignore[misc]


class Result(NamedTuple):
    """The facts of a bench, and its samples."""

    about: dict[str, Any]  # date, command, versions, seed and the like
    nodes: list[dict[str, Any]]  # each with its host, facts and a drawing for each arm
    against: str  # the arm that the others are compared with
    arms: list[Arm]
    omitted: dict[str, str]  # arms, and why
    not_run: dict[str, str]  # workloads, and why
    measured: list[Measured]

    @property
    def ranks(self) -> int:
        """The number of ranks of the largest arm."""
        return max((len(arm.ranks) for arm in self.arms), default=0)


class Row(NamedTuple):
    """A comparison of two arms in one series of a workload."""

    workload: str
    series: str
    arm: str
    against: str
    comparison: stats.Comparison


def series_of(taken: Sequence[Taken], names: Iterable[str], part: str = "values") -> dict[str, Any]:
    """The values, or steps, of each rank in each round, by series and arm.

    Rounds that not all of these arms have are left out.
    """
    cells = {(each.round, each.arm): getattr(each, part) for each in taken if not each.error}
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


def slowest(samples: Samples, higher_is_better: bool) -> dict[str, list[float]]:
    """The slowest rank's value in each round, by arm."""
    worst = min if higher_is_better else max
    return {
        arm: [worst(value for value in ranks if value is not None) for ranks in rounds]
        for arm, rounds in samples.items()
    }


def summed_up(measured: Measured) -> dict[str, dict[str, list[float]]]:
    """The rounds' values by series and arm; the geometric mean of several series comes last."""
    higher = measured.workload.higher_is_better
    series = measured.series
    each = {name: slowest(samples, higher) for name, samples in series.items()}
    if not measured.workload.together:
        for name, arms in each.items():
            _of_each_step(measured, name, series[name], arms)
    if len(each) > 1 and measured.rounds:
        arms = next(iter(each.values()))
        each[MEAN] = {
            arm: stats.geometric_means([series[arm] for series in each.values()]) for arm in arms
        }
    return each


def _of_each_step(
    measured: Measured, series: str, samples: Samples, arms: dict[str, list[float]]
) -> None:
    """Correct the values of a series: a job waits in each step for its slowest rank at that step.

    The recorded steps show how much longer that takes than the mean rank takes.
    """
    sign = -1 if measured.workload.higher_is_better else 1
    steps = series_of(measured.taken, arms, "steps")
    for arm, rounds in steps.get(series, {}).items():
        for number, ranks in enumerate(rounds):
            if len(ranks) > 1 and all(ranks):
                most = fmean(map(max, zip(*ranks, strict=False)))
                typical = fmean(value**sign for value in samples[arm][number] if value)
                cost = typical * most / fmean(map(fmean, ranks))
                arms[arm][number] = max(cost, arms[arm][number] ** sign) ** sign


def rows(result: Result) -> list[Row]:
    """The comparisons of every arm with the chosen one."""
    return [row for measured in result.measured for row in rows_of(measured, result.against)]


def rows_of(measured: Measured, against: str) -> list[Row]:
    """The comparisons of one workload; with several series only their mean has a verdict."""
    names = [arm for arm in measured.there if arm != against and against in measured.there]
    higher = measured.workload.higher_is_better
    compared = []
    summed = summed_up(measured)
    for series, values in summed.items():
        costs = [stats.pair(values[arm], values[against], higher) for arm in names]
        if series == MEAN or len(summed) == 1:
            verdicts = stats.judge(costs, stats.ERROR)
        else:
            level = stats.ERROR / max(1, len(names))
            verdicts = [stats.compared(each, level)._replace(verdict="") for each in costs]
        compared += [
            Row(measured.workload.name, series, arm, against, each)
            for arm, each in zip(names, verdicts, strict=True)
        ]
    return compared


def headline(rows: Sequence[Row]) -> list[Row]:
    """The rows with a verdict, one for each workload and pair: the only series, or their mean."""
    return [row for row in rows if row.comparison.verdict]


class Recorder:
    """Writes a file line by line. Raises UsageError where it cannot be written."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._descriptor = files.opened(path, os.O_WRONLY | os.O_TRUNC)
        except OSError as error:
            raise unwritable(path, error) from None

    def write(self, kind: str, value: dict[str, Any]) -> None:
        """Write one line, which is on the disk when this returns."""
        data = (json.dumps({kind: value}, allow_nan=False) + "\n").encode()
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
    return errors.UsageError(f"cannot write {path}: {error.strerror}; use another name")


def as_line(taken: Taken) -> dict[str, Any]:
    """The fields of a sample that differ from the defaults, for its line."""
    known = {
        name: value
        for name, value in taken._asdict().items()
        if value != Taken._field_defaults.get(name, None)
    }
    return {**known, "efforts": [effort.as_json(each) for each in taken.efforts]}


def lines(path: str) -> Iterator[Line]:
    """Yield the lines of a file, without an incomplete last one. Raises ValueError and OSError."""
    for text in Path(path).read_text(encoding="utf-8").splitlines(keepends=True):
        if not text.endswith("\n"):
            return
        ((kind, value),) = json.loads(text).items()
        yield kind, value


def taken_of(fields: dict[str, Any]) -> Taken:
    """Read a sample from its line."""
    efforts = tuple(effort.read(each) for each in fields["efforts"])
    known = {name: tuple(fields.get(name, ())) for name in ("values", "steps")}
    return Taken(**{**fields, **known, "efforts": efforts})


def head(result: Result) -> dict[str, Any]:
    """The first line of the file: all that is known before any measurement."""
    return {
        "format": FORMAT,
        **{name: value for name, value in result._asdict().items() if name != "measured"},
        "arms": [
            {**arm._asdict(), "ranks": [s._asdict() for s in arm.ranks]} for arm in result.arms
        ],
    }


def summary(result: Result, advice: dict[str, Any]) -> dict[str, Any]:
    """The last line of the file: the comparisons and the advice, for other programs."""
    compared = []
    for row in rows(result):
        fields = row.comparison._asdict()
        # JSON has no infinity: an unknown end of an interval is null.
        known = {name: None if value == math.inf else value for name, value in fields.items()}
        known["low"] = row.comparison.low or None
        compared.append({**row._asdict(), "comparison": known})
    return {"comparisons": compared, "advice": advice}


def check_writable(path: str, *, is_read: bool = False) -> None:
    """Raises UsageError where no file can be written, or read: before a measurement, not after."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path) or (is_read and os.path.exists(path) and not os.path.isfile(path)):
        raise errors.UsageError(f"{path} is a directory or a device; give the name of a file")
    if not os.path.isdir(folder):
        raise errors.UsageError(
            f"cannot write {path}: there is no directory {folder}; make it first"
        )
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise errors.UsageError(f"cannot write {path}: it is not permitted; use another name")


def read(path: str) -> Result:
    """Read the result from a file. Raises UsageError."""
    try:
        file_lines = list(lines(path))
        kind, first = file_lines[0]
        if kind != BENCH or first["format"] != FORMAT:
            raise KeyError("format")
        arms = [
            Arm(**{**arm, "ranks": tuple(BoundRank(**rank) for rank in arm["ranks"])})
            for arm in first["arms"]
        ]
        fields = {name: first[name] for name in Result._fields if name not in ("arms", "measured")}
        taken = [taken_of(each) for kind, each in file_lines if kind == SAMPLE]
        return Result(**fields, arms=arms, measured=begun(first["about"]["workloads"], arms, taken))
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise errors.UsageError(
            f"{path} is not what --json of this version writes ({error!r}); measure again"
        ) from None


def begun(
    workloads: Sequence[dict[str, Any]],
    arms: Sequence[Arm],
    taken: Sequence[Taken] = (),
) -> list[Measured]:
    """The workloads in their order, with the samples so far."""
    names = tuple(arm.name for arm in arms)
    return [
        Measured(Workload(**each), names, [its for its in taken if its.workload == each["name"]])
        for each in workloads
    ]

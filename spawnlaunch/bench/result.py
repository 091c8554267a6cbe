"""Everything that was measured: what --json writes, and --show and --compare read."""

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from spawnlaunch.bench import stats
from spawnlaunch.bench.stats import Comparison
from spawnlaunch.bench.workloads import Workload
from spawnlaunch.errors import UsageError

FORMAT = 3
MEAN = "geometric mean"  # the series that sums up several

# For each arm, for each round, the value of each rank; None: the rank printed no metric.
Samples = dict[str, list[list[float | None]]]


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


class Measured(NamedTuple):
    """A workload and its samples, by the name of the series; a single series has the name ""."""

    workload: Workload
    series: dict[str, Samples]
    error: float  # with which probability its table may claim a difference where there is none

    @property
    def rounds(self) -> int:
        """How many were counted."""
        return len(next(iter(next(iter(self.series.values())).values())))


class Result(NamedTuple):
    """A bench."""

    about: dict[str, Any]  # date, command, versions, seed and the like
    nodes: list[dict[str, Any]]  # each with its host, facts and a drawing for each arm
    against: str  # the arm that the others are compared with
    arms: list[Arm]
    left_out: dict[str, str]  # arms, and why
    not_run: dict[str, str]  # workloads, and why
    measured: list[Measured]


class Row(NamedTuple):
    """A comparison with what was compared."""

    workload: str
    series: str
    arm: str
    against: str
    comparison: Comparison


def slowest(samples: Samples, higher_is_better: bool) -> dict[str, list[float]]:
    """For each arm the rounds' values of the slowest rank."""
    worst = min if higher_is_better else max
    return {
        arm: [worst(value for value in ranks if value is not None) for ranks in rounds]
        for arm, rounds in samples.items()
    }


def summed_up(measured: Measured) -> dict[str, dict[str, list[float]]]:
    """By series and arm the rounds' values; of several series their geometric mean comes last."""
    higher = measured.workload.higher_is_better
    each = {name: slowest(samples, higher) for name, samples in measured.series.items()}
    if len(each) > 1:
        arms = next(iter(each.values()))
        each[MEAN] = {
            arm: stats.geometric_means([series[arm] for series in each.values()]) for arm in arms
        }
    return each


def rows(result: Result) -> list[Row]:
    """Every arm against the one that was chosen, and then against `auto`, by which is advised."""
    return [row for measured in result.measured for row in rows_of(measured, result)]


def rows_of(measured: Measured, result: Result) -> list[Row]:
    """The comparisons of one workload."""
    compared = pairs([arm.name for arm in result.arms], result.against)
    higher = measured.workload.higher_is_better
    found = []
    for series, values in summed_up(measured).items():
        logs = [stats.log_ratios(values[arm], values[other], higher) for arm, other in compared]
        if series == MEAN or len(measured.series) == 1:
            verdicts = stats.judge(logs, measured.error)
        else:
            level = measured.error / max(1, len(compared))
            verdicts = [stats.compared(each, level)._replace(verdict="") for each in logs]
        found += [
            Row(measured.workload.name, series, *pair, each)
            for pair, each in zip(compared, verdicts, strict=True)
        ]
    return found


def pairs(arms: Sequence[str], against: str) -> list[tuple[str, str]]:
    """The arms that are compared: each with that one, and then with `auto`, the default."""
    found = [(arm, against) for arm in arms if arm != against]
    if "auto" in arms and against != "auto":
        found += [(arm, "auto") for arm in arms if arm not in ("auto", against)]
    return found


def headline(rows: Sequence[Row]) -> list[Row]:
    """Those with a verdict, one for each workload and pair: the only series, or their mean."""
    return [row for row in rows if row.comparison.verdict]


def write(result: Result, path: str, **more: object) -> None:
    """As JSON, with the comparisons, and `more`, for whoever reads it; raises UsageError."""
    text = json.dumps(
        {
            "format": FORMAT,
            **result._asdict(),
            "arms": [
                {**arm._asdict(), "ranks": [s._asdict() for s in arm.ranks]} for arm in result.arms
            ],
            "measured": [
                {**each._asdict(), "workload": each.workload._asdict()} for each in result.measured
            ],
            "comparisons": [
                {**row._asdict(), "comparison": _finite(row.comparison)} for row in rows(result)
            ],
            **more,
        },
        indent=1,
        allow_nan=False,
    )
    try:
        Path(path).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; type another name") from None


def _finite(comparison: Comparison) -> dict[str, Any]:
    """For JSON, which has no infinity: an end of an interval that is not known is null."""
    known = {
        name: None if value == math.inf else value for name, value in comparison._asdict().items()
    }
    return {**known, "low": comparison.low or None}


def check_writable(path: str) -> None:
    """Raises UsageError where no file can be written: before a measurement, not after it."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path):
        raise UsageError(f"{path} is a directory; type the name of a file")
    if not os.path.isdir(folder):
        raise UsageError(f"cannot write {path}: there is no directory {folder}; make it first")
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise UsageError(f"cannot write {path}: it is not permitted; type another name")


def read(path: str) -> Result:
    """What `write` wrote. Raises UsageError."""
    try:
        said = json.loads(Path(path).read_text(encoding="utf-8"))
        if said["format"] != FORMAT:
            raise KeyError("format")
        arms = [
            Arm(arm["name"], arm["flag"], tuple(BoundRank(**rank) for rank in arm["ranks"]))
            for arm in said["arms"]
        ]
        measured = [
            Measured(Workload(**each["workload"]), each["series"], float(each["error"]))
            for each in said["measured"]
        ]
        kept = {name: said[name] for name in Result._fields}
        return Result(**{**kept, "arms": arms, "measured": measured})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} is not what --json of this version writes ({error!r}); measure again"
        ) from None

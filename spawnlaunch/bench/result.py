"""Everything that was measured: what --json writes, and --show and --compare read."""

import json
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


class Result(NamedTuple):
    """A bench."""

    about: dict[str, Any]  # date, command, versions, seed and the like
    nodes: list[dict[str, Any]]  # each with its host, facts and a drawing for each arm
    against: str  # the arm that the others are compared with
    arms: list[Arm]
    left_out: dict[str, str]  # arms, and why
    not_run: dict[str, str]  # workloads, and why
    measured: list[Measured]

    @property
    def seed(self) -> int:
        """Of the bootstrap."""
        return int(self.about["seed"])


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
    names = [arm.name for arm in result.arms]
    pairs = [(name, result.against) for name in names if name != result.against]
    if "auto" in names and result.against != "auto":
        pairs += [(name, "auto") for name in names if name not in ("auto", result.against)]
    higher = measured.workload.higher_is_better
    return [
        Row(
            measured.workload.name,
            series,
            name,
            against,
            stats.paired(values[name], values[against], higher, result.seed),
        )
        for series, values in summed_up(measured).items()
        for name, against in pairs
    ]


def headline(rows: Sequence[Row]) -> list[Row]:
    """One row for each workload and pair: the only series, or the mean of several."""
    means = {row.workload for row in rows if row.series == MEAN}
    return [row for row in rows if row.series == MEAN or row.workload not in means]


def write(result: Result, path: str) -> None:
    """As JSON, with the comparisons for whoever reads it; raises UsageError."""
    text = json.dumps(
        {
            "format": FORMAT,
            **result._asdict(),
            "arms": [
                {**arm._asdict(), "ranks": [s._asdict() for s in arm.ranks]} for arm in result.arms
            ],
            "measured": [
                {"workload": each.workload._asdict(), "series": each.series}
                for each in result.measured
            ],
            "comparisons": [
                {
                    **row._asdict(),
                    "comparison": {**row.comparison._asdict(), "noisy": row.comparison.noisy},
                }
                for row in rows(result)
            ],
        },
        indent=1,
    )
    try:
        Path(path).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; type another name") from None


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
            Measured(Workload(**each["workload"]), each["series"]) for each in said["measured"]
        ]
        kept = {name: said[name] for name in Result._fields}
        return Result(**{**kept, "arms": arms, "measured": measured})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} is not what --json of this version writes ({error!r}); measure again"
        ) from None

"""Everything that was measured: what --show and --compare read from the file of a bench."""

import itertools
import math
import os
from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

from spawnlaunch import errors
from spawnlaunch.bench import effort, record, stats
from spawnlaunch.bench.workloads import Workload

MEAN = "geometric mean"  # the series that sums up several
LENGTHS = ("rounds", "budget_s")  # of a bench, which --resume may change

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
    beside: str = ""  # what it has that no flag of the launcher gives; then it is not advised


class Measured(NamedTuple):
    """A workload and its samples."""

    workload: Workload
    names: tuple[str, ...]  # of the arms
    taken: list[record.Taken]  # in the order of time
    error: float  # with which probability its table may claim a difference where there is none
    is_ended: bool = True  # False: the bench was interrupted in it

    @property
    def failed(self) -> dict[str, str]:
        """The arms that failed in it, and why."""
        return {each.arm: each.error for each in self.taken if each.error}

    @property
    def there(self) -> list[str]:
        """The arms that did not fail."""
        return [name for name in self.names if name not in self.failed]

    @property
    def series(self) -> dict[str, Samples]:
        """The samples that count, by the name of the series; a single series has the name ""."""
        return record.series_of([each for each in self.taken if each.counts], self.there)

    @property
    def rounds(self) -> int:
        """How many were counted."""
        return next((len(its) for arms in self.series.values() for its in arms.values()), 0)

    def disturbed(self, *, counts: bool) -> Counter[str]:
        """What disturbed samples that count nevertheless, or were taken again, and how many."""
        return Counter(each.mark for each in self.taken if each.mark and each.counts == counts)

    def efforts(self, arm: str) -> list[list[effort.Effort]]:
        """What the samples of an arm that count cost each rank, for all rounds."""
        counted = [each.efforts for each in self.taken if each.arm == arm and each.counts]
        ranks = max(map(len, counted), default=0)
        return [[its[r] for its in counted if r < len(its) and its[r]] for r in range(ranks)]  # type: ignore[misc]


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
    def ranks(self) -> int:
        """Those of the arm that has most."""
        return max((len(arm.ranks) for arm in self.arms), default=0)


class Row(NamedTuple):
    """A comparison with what was compared."""

    workload: str
    series: str
    arm: str
    against: str
    comparison: stats.Comparison


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
    """A job waits in each step for its slowest rank, and not always for the same one.

    The steps that were kept say how much longer that takes than the mean rank takes.
    """
    sign = -1 if measured.workload.higher_is_better else 1
    steps = record.series_of([each for each in measured.taken if each.counts], arms, "steps")
    for arm, rounds in steps.get(series, {}).items():
        for number, ranks in enumerate(rounds):
            if len(ranks) > 1 and all(ranks):
                most = fmean(map(max, zip(*ranks, strict=False)))
                typical = fmean(value**sign for value in samples[arm][number] if value)
                cost = typical * most / fmean(map(fmean, ranks))
                arms[arm][number] = max(cost, arms[arm][number] ** sign) ** sign


def rows(result: Result) -> list[Row]:
    """Every arm against the one that was chosen, and then against `auto`, by which is advised."""
    return [row for measured in result.measured for row in rows_of(measured, result.against)]


def rows_of(measured: Measured, against: str) -> list[Row]:
    """The comparisons of one workload, with this arm and with `auto`."""
    compared = pairs(measured.there, against)
    higher = measured.workload.higher_is_better
    found = []
    summed = summed_up(measured)
    for series, values in summed.items():
        costs = [stats.pair(values[arm], values[other], higher) for arm, other in compared]
        if series == MEAN or len(summed) == 1:
            verdicts = stats.judge(costs, measured.error)
        else:
            level = measured.error / max(1, len(compared))
            verdicts = [stats.compared(each, level)._replace(verdict="") for each in costs]
        found += [
            Row(measured.workload.name, series, *pair, each)
            for pair, each in zip(compared, verdicts, strict=True)
        ]
    return found


def enough_rounds(measured: Measured, against: str) -> int:
    """How many would give each comparison an interval; 0: these do, or nothing is compared."""
    if all(row.comparison.low for row in headline(rows_of(measured, against))):
        return 0
    *_, values = summed_up(measured).values()
    compared, higher = pairs(measured.there, against), measured.workload.higher_is_better
    costs = [stats.pair(values[arm], values[other], higher) for arm, other in compared]
    return stats.enough_rounds(costs, measured.error / len(compared))


def pairs(arms: Sequence[str], against: str) -> list[tuple[str, str]]:
    """The arms that are compared: each with that one, and then with `auto`, the default."""
    found = [(arm, against) for arm in arms if arm != against and against in arms]
    if "auto" in arms and against != "auto":
        found += [(arm, "auto") for arm in arms if arm not in ("auto", against)]
    return found


def headline(rows: Sequence[Row]) -> list[Row]:
    """Those with a verdict, one for each workload and pair: the only series, or their mean."""
    return [row for row in rows if row.comparison.verdict]


def head(result: Result) -> dict[str, Any]:
    """All that is known before anything is measured."""
    return {
        "format": record.FORMAT,
        **{name: value for name, value in result._asdict().items() if name != "measured"},
        "arms": [
            {**arm._asdict(), "ranks": [s._asdict() for s in arm.ranks]} for arm in result.arms
        ],
    }


def end_of(measured: Measured) -> dict[str, Any]:
    """That a workload is done."""
    return {"workload": measured.workload.name, "error": measured.error}


def found(result: Result, advice: dict[str, Any]) -> dict[str, Any]:
    """What the samples say, for whoever reads the file."""
    compared = [{**row._asdict(), "comparison": _finite(row.comparison)} for row in rows(result)]
    return {"comparisons": compared, "advice": advice}


def _finite(comparison: stats.Comparison) -> dict[str, Any]:
    """For JSON, which has no infinity: an end of an interval that is not known is null."""
    known = {
        name: None if value == math.inf else value for name, value in comparison._asdict().items()
    }
    return {**known, "low": comparison.low or None}


def check_writable(path: str, *, is_read: bool = False) -> None:
    """Raises UsageError where no file can be written, or read: before a measurement, not after."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path) or (is_read and os.path.exists(path) and not os.path.isfile(path)):
        raise errors.UsageError(f"{path} is a directory or a device; type the name of a file")
    if not os.path.isdir(folder):
        raise errors.UsageError(
            f"cannot write {path}: there is no directory {folder}; make it first"
        )
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise errors.UsageError(f"cannot write {path}: it is not permitted; type another name")


def read(path: str, *, is_open: bool = False) -> Result:
    """What a file says; if a bench goes on with it, nothing is left out. Raises UsageError."""
    try:
        said = list(record.lines(path))
        kind, first = said[0]
        if kind != record.BENCH or first["format"] != record.FORMAT:
            raise KeyError("format")
        arms = [
            Arm(**{**arm, "ranks": tuple(BoundRank(**rank) for rank in arm["ranks"])})
            for arm in first["arms"]
        ]
        kept = {name: first[name] for name in Result._fields if name not in ("arms", "measured")}
        result = Result(**kept, arms=arms, measured=[])
        taken = [record.taken_of(each) for kind, each in said if kind == record.SAMPLE]
        ended = {each["workload"]: each["error"] for kind, each in said if kind == record.ENDED}
        resumed = [each for kind, each in said if kind == record.RESUMED]
        result.about["resumed"] = resumed
        for each in resumed:  # more may have been asked for
            result.about.update({name: each[name] for name in LENGTHS if name in each})
        late = itertools.takewhile(lambda line: line[0] != record.RESUMED, reversed(said))
        for kind, each in () if is_open else late:  # what the budget was not enough for
            if kind == record.LEFT_OUT:
                result.not_run.update(each)
            if kind == record.PLANNED:
                result.about["planned"] = each["lines"]
        return result._replace(measured=_measured(result, taken, ended))
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise errors.UsageError(
            f"{path} is not what --json of this version writes ({error!r}); measure again"
        ) from None


def _measured(
    result: Result, taken: Sequence[record.Taken], ended: dict[str, float]
) -> list[Measured]:
    """The workloads of which there are samples.

    One that was interrupted is judged with all the error that no look has had: when a bench is
    interrupted does not depend on who is better.
    """
    names = tuple(arm.name for arm in result.arms)
    workloads = [Workload(**each) for each in result.about["workloads"]]
    found = []
    for workload in workloads:
        if workload.name in result.not_run:
            continue
        its = [each for each in taken if each.workload == workload.name]
        done = Measured(workload, names, its, ended.get(workload.name, 0.0), workload.name in ended)
        if not done.is_ended:
            done = done._replace(error=stats.error_of_look(done.rounds, True) / len(workloads))
        if its:
            found.append(done)
    return found

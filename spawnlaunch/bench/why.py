"""Why an arm is better or worse: the cause that what the samples cost fits, or none. Pure.

A cause fits if the worse arm has it and the better one has not, by more than a threshold; it is not
a proof. Looked at are the ranks of an arm together, except for what only the worst rank shows.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from spawnlaunch.bench import effort, results, stats

WAITED = 0.05  # of the time, more than under the other arm
REMOTE = 0.1  # of the memory
CLOCK = 0.03  # of the frequency
PER_S = 5.0  # migrations or switches of a rank, beyond three times those of the other arm
TIMES = 3.0
NONE = "nothing that was looked at fits: threads, waiting, memory, clock, migrations, switches"


class Costs(NamedTuple):
    """What a rank's samples cost in the mean; None: it is not known."""

    waited: float  # share of the time
    remote: float | None  # share of the memory
    mhz: float | None
    migrations: float | None  # per second
    involuntary: float | None  # per second
    strayed: str


def costs(efforts: Sequence[effort.Effort]) -> Costs:
    """Of one rank under one arm."""
    took_s = sum(each.took_s for each in efforts) or 1.0
    ran = sum(each.ran_s or 0.0 for each in efforts)
    waited = sum(each.waited_s or 0.0 for each in efforts)
    local = _mean([each.local_pages for each in efforts])
    return Costs(
        waited / (ran + waited) if waited else 0.0,
        None if local is None else 1 - local,
        _mean([each.mhz for each in efforts]),
        _rate([each.migrations for each in efforts], took_s),
        _rate([each.involuntary for each in efforts], took_s),
        next((each.strayed for each in efforts if each.strayed), ""),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _rate(counts: Sequence[int | None], took_s: float) -> float | None:
    known = [count for count in counts if count is not None]
    return sum(known) / took_s if known else None


def cause(row: results.Row, measured: results.Measured, result: results.Result) -> str:
    """The causes that fit a verdict, the first ones that were found."""
    arms = {arm.name: arm for arm in result.arms}
    is_better = row.comparison.verdict == stats.BETTER
    good, bad = (row.arm, row.against) if is_better else (row.against, row.arm)
    ranks = {name: [costs(its) for its in measured.efforts(name) if its] for name in (good, bad)}
    found = list(_threads(arms[good], arms[bad]))
    if ranks[good] and ranks[bad]:
        found += _fitting(ranks[good], ranks[bad], good, bad)
    return "; ".join(found) or NONE


def _threads(good: results.Arm, bad: results.Arm) -> Iterator[str]:
    ours, theirs = ([rank.threads for rank in arm.ranks] for arm in (good, bad))
    if ours != theirs and len(ours) == len(theirs):
        threads = "1 thread" if max(ours) == 1 else f"{max(ours)} threads"
        yield f"{good.name} has {threads} a rank, {bad.name} {max(theirs)}"


def _fitting(good: Sequence[Costs], bad: Sequence[Costs], ours: str, theirs: str) -> Iterator[str]:
    """What the worse arm has and the better one has not; of each cost its worst rank."""
    strayed = [costs.strayed for costs in bad if costs.strayed]
    if strayed and not any(costs.strayed for costs in good):
        yield f"a thread of {theirs} was moved to CPUs {strayed[0]}"
    waited, other = (max(costs.waited for costs in ranks) for ranks in (bad, good))
    if waited - other > WAITED:
        yield f"ranks of {theirs} waited {waited:.0%} of the time for a CPU, of {ours} {other:.0%}"
    remote, near = _worst(bad, lambda costs: costs.remote), _worst(good, lambda costs: costs.remote)
    if remote is not None and near is not None and remote - near > REMOTE:
        yield f"{remote:.0%} of the memory of {theirs} was remote, of {ours} {near:.0%}"
    slow, fast = ([costs.mhz for costs in ranks if costs.mhz] for ranks in (bad, good))
    if slow and fast and min(slow) < (1 - CLOCK) * min(fast):
        yield f"CPUs of {theirs} ran at {min(slow):.0f} MHz, of {ours} at {min(fast):.0f}"
    for what, of in (
        ("migrations", lambda costs: costs.migrations),
        ("involuntary switches", lambda costs: costs.involuntary),
    ):
        many, few = _worst(bad, of), _worst(good, of)
        if many is not None and few is not None and many > TIMES * few + PER_S:
            yield f"{theirs} had {many:.0f} {what} a second, {ours} {few:.0f}"


def _worst(ranks: Sequence[Costs], of: Callable[[Costs], float | None]) -> float | None:
    known = [value for costs in ranks if (value := of(costs)) is not None]
    return max(known) if known else None

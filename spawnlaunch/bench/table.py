"""What a person reads: the arms, a table for each workload, and the advice. Pure."""

import textwrap
from collections.abc import Iterator, Sequence

from spawnlaunch.bench.advice import advise, weighted
from spawnlaunch.bench.arms import CONTROLS
from spawnlaunch.bench.result import Arm, Measured, Result, Row, pairs, rows_of, summed_up
from spawnlaunch.bench.stats import (
    DELTA,
    EQUAL,
    UNDECIDED,
    Comparison,
    fewest_rounds,
    middle,
)
from spawnlaunch.bench.workloads import Workload

CPUS_CHARS = 60
PAGE_CHARS = 98
COLUMNS = ("arm", "median", "least to most", "against", "ratio", "interval", "verdict")
TOGETHER = "in 19 of 20 benches no verdict of the page is wrong; an interval is what it goes by"


def header(result: Result) -> Iterator[str]:
    """What is compared, where, and what is left out."""
    about = result.about
    hosts = ", ".join(node["host"] for node in result.nodes)
    ranks = len(result.arms[0].ranks) if result.arms else 0
    count = "1 rank" if ranks == 1 else f"{ranks} ranks"
    device = f", computing on {about['device']}" if about["device"] else ""
    rounds = (
        f"{about['rounds']} rounds" if about["rounds"] else f"up to {lasting(about['budget_s'])}"
    )
    yield f"{count} on {hosts}{device}; {rounds}, seed {about['seed']}"
    for arm in result.arms:
        yield f"  {arm.name:12} {_cpus(arm)}{' (a control)' if arm.name in CONTROLS else ''}"
    for name, why in result.left_out.items():
        yield f"  {name:12} left out: {why}"
    for name, why in result.not_run.items():
        yield f"{name} left out: {why}"


def _cpus(arm: Arm) -> str:
    """The CPUs of the ranks of the first node, as `0-7 | 8-15`."""
    first = [rank for rank in arm.ranks if rank.host == arm.ranks[0].host]
    cpus = [rank.cpus or "any" for rank in first]
    ranks = "1 rank" if len(cpus) == 1 else f"{len(cpus)} ranks"
    text = f"any CPU for {ranks}" if set(cpus) == {"any"} else " | ".join(cpus)
    return textwrap.shorten(text, CPUS_CHARS, placeholder=" ...")


def title(workload: Workload) -> str:
    """The name, and what the numbers are."""
    better = "more" if workload.higher_is_better else "less"
    return f"{workload.name} ({workload.unit} of the slowest rank, {better} is better)"


def block(measured: Measured, result: Result) -> Iterator[str]:
    """The table of one workload."""
    workload = measured.workload
    yield ""
    yield title(workload)
    yield f"  {workload.about}"
    compared = rows_of(measured, result)
    for series, arms in summed_up(measured).items():
        mine = [row for row in compared if row.series == series]
        lines = (_lines(arm.name, arms[arm.name], mine) for arm in result.arms)
        cells = [COLUMNS, *(line for each in lines for line in each)]
        if series:
            yield f"  {series}"
        yield from aligned(cells)
    yield f"  {measured.rounds} round{'' if measured.rounds == 1 else 's'}"
    if compared:
        fewest = fewest_rounds(measured.error / len(pairs(list(arms), result.against)))
        if measured.rounds < fewest:
            yield f"  {fewest} are needed to tell; type --rounds {fewest}, or a larger --budget"


def verdict(found: Comparison) -> str:
    """The verdict as a cell of a table; of an undecided one, which difference would be seen."""
    if found.verdict == EQUAL:
        return f"equal within {DELTA:.0%}"
    if found.verdict == UNDECIDED:
        seen = f"{found.seen:.1%} would be seen" if found.low else "too few to tell"
        return f"undecided: {seen}"
    return found.verdict


def interval(found: Comparison) -> str:
    """The interval as a cell of a table."""
    return f"{found.low:.3f} to {found.high:.3f}" if found.low else "any"


def _lines(name: str, values: Sequence[float], rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """An arm's values, and a line for each comparison; the first is on the same line."""
    spread = f"{short(min(values))} to {short(max(values))}"
    compared = [_cells(row) for row in rows if row.arm == name] or [("",) * 4]
    yield (name, short(middle(values)), spread, *compared[0])
    yield from (("", "", "", *more) for more in compared[1:])


def _cells(row: Row) -> tuple[str, ...]:
    found = row.comparison
    return (
        row.against,
        f"{found.ratio:.3f}",
        interval(found),
        verdict(found),
    )


def aligned(cells: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns, indented."""
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    for row in cells:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"  {line}".rstrip()


def short(value: float) -> str:
    """Three digits that count: 0.0123, 1.23, 123, 12345."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3g}"


def lasting(seconds: float) -> str:
    """`90 s`, `5 min` or `2 h 10 min`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def end(result: Result, chosen: Sequence[str]) -> Iterator[str]:
    """What the page says, and what is advised by it."""
    found = advise(result, chosen)
    yield ""
    if found.arm:
        yield TOGETHER
        yield f"advice for {weighted(found.weights)}:"
        yield textwrap.fill(found.text, PAGE_CHARS, initial_indent="  ", subsequent_indent="  ")
    else:
        yield f"advice: {found.text}"


def page(result: Result, chosen: Sequence[str] = ()) -> Iterator[str]:
    """All of it."""
    yield from header(result)
    for measured in result.measured:
        yield from block(measured, result)
    yield from end(result, chosen)

"""What a person reads: the arms, a table for each workload, and the advice. Pure."""

import textwrap
from collections.abc import Iterator, Sequence

from spawnlaunch.bench.advice import advice
from spawnlaunch.bench.result import Arm, Measured, Result, Row, rows_of, summed_up
from spawnlaunch.bench.stats import MIN_ROUNDS, NOISY_SPAN, Comparison, middle
from spawnlaunch.bench.workloads import Workload

CPUS_CHARS = 60
COLUMNS = ("arm", "median", "least to most", "against", "ratio", "95 %", "p", "verdict")


def header(result: Result) -> Iterator[str]:
    """What is compared, where, and what is left out."""
    about = result.about
    hosts = ", ".join(node["host"] for node in result.nodes)
    ranks = len(result.arms[0].ranks) if result.arms else 0
    count = "1 rank" if ranks == 1 else f"{ranks} ranks"
    device = f", computing on {about['device']}" if about["device"] else ""
    yield f"{count} on {hosts}{device}; {about['rounds']} rounds, seed {about['seed']}"
    for arm in result.arms:
        yield f"  {arm.name:12} {_cpus(arm)}"
    for name, why in result.left_out.items():
        yield f"  {name:12} left out: {why}"
    for name, why in result.not_run.items():
        yield f"{name} left out: {why}"


def _cpus(arm: Arm) -> str:
    """The CPUs of the ranks of the first node, as `0-7 | 8-15`."""
    first = [rank for rank in arm.ranks if rank.host == arm.ranks[0].host]
    cpus = [rank.cpus or "any" for rank in first]
    text = f"any CPU for {len(cpus)} ranks" if set(cpus) == {"any"} else " | ".join(cpus)
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
    yield from notes([row.comparison for row in compared])


def notes(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """What the verdicts of a table need to be understood."""
    if any(found.noisy for found in comparisons):
        yield (
            f"  noisy: the ends of the interval are more than {NOISY_SPAN - 1:.0%} apart, too far\n"
            "  to tell what pinning is worth; try a quieter machine, or more --rounds"
        )
    if any(found.rounds < MIN_ROUNDS for found in comparisons):
        yield f"  in fewer than {MIN_ROUNDS} rounds no difference is sure; type more --rounds"


def verdict(found: Comparison) -> str:
    """The verdict as a cell of a table."""
    return f"{found.verdict} (noisy)" if found.noisy else found.verdict


def _lines(name: str, values: Sequence[float], rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """An arm's values, and a line for each comparison; the first is on the same line."""
    spread = f"{short(min(values))} to {short(max(values))}"
    compared = [_cells(row) for row in rows if row.arm == name] or [("",) * 5]
    yield (name, short(middle(values)), spread, *compared[0])
    yield from (("", "", "", *more) for more in compared[1:])


def _cells(row: Row) -> tuple[str, ...]:
    found = row.comparison
    return (
        row.against,
        f"{found.ratio:.3f}",
        f"{found.low:.3f} to {found.high:.3f}",
        f"{found.p:.4f}",
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


def page(result: Result) -> Iterator[str]:
    """All of it."""
    yield from header(result)
    for measured in result.measured:
        yield from block(measured, result)
    yield ""
    yield f"advice: {advice(result)}"

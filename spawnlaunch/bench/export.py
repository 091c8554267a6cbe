"""The tables of a result for other programs (CSV) and for a README or a paper (Markdown).

CSV (RFC 4180) has a line for each comparison, and one for an arm that has none. Numbers are not
rounded. An end of an interval that is not known is empty.
"""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spawnlaunch import printing
from spawnlaunch.bench import command_line, flags, record, results, stats, table

OF_ARM = ("workload", "series", "unit", "better", "arm", "threads", "ranks", "rounds")
NOTHING = "--plot {}: no round was measured, so there is nothing to draw"
FIELDS = (*OF_ARM, "median", "least", "most", "against", "ratio", "low", "high", "verdict")


def as_csv(result: results.Result) -> str:
    """A line for each workload, series, arm and arm that it is compared with."""
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, lineterminator="\n")
    writer.writeheader()
    for measured in result.measured:
        writer.writerows(_records(measured, result))
    return text.getvalue()


def _records(measured: results.Measured, result: results.Result) -> Iterator[dict[str, Any]]:
    workload = measured.workload
    compared = results.rows_of(measured, result.against)
    for series, arms in results.summed_up(measured).items():
        for arm in (each for each in result.arms if arms.get(each.name)):
            values = arms[arm.name]
            known: dict[str, Any] = {
                "workload": workload.name,
                "series": series,
                "unit": workload.unit,
                "better": "more" if workload.higher_is_better else "less",
                "arm": arm.name,
                "threads": table.threads(arm),
                "ranks": len(arm.ranks),
                "rounds": len(values),
                "median": stats.middle(values),
                "least": min(values),
                "most": max(values),
            }
            rows = [row for row in compared if (row.series, row.arm) == (series, arm.name)]
            yield from ({**known, **_compared(row)} for row in rows)
            if not rows:
                yield known


def _compared(row: results.Row) -> dict[str, Any]:
    found = row.comparison
    ends = {"low": found.low, "high": found.high} if found.low else {}
    return {"against": row.against, "ratio": found.ratio, **ends, "verdict": found.verdict}


def as_markdown(result: results.Result) -> str:
    """The tables of the page, as GitHub and most others read them."""
    return "\n".join(_markdown(result)) + "\n"


def _markdown(result: results.Result) -> Iterator[str]:
    hosts = ", ".join(f"{node['host']} ({node['processor']})" for node in result.nodes)
    about = result.about
    yield f"Measured on {about['date']}, {result.ranks} ranks, {hosts}: `{about['command']}`"
    for measured in result.measured:
        compared = results.rows_of(measured, result.against)
        for series, (head, *cells) in table.tables(measured, result, compared):
            name = f": {series}" if series else ""
            yield f"\n**{table.title(measured.workload)}**{name}, {measured.rounds} rounds\n"
            yield _row(head)
            yield "|" + "---|" * len(head)
            yield from map(_row, cells)


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def write(result: results.Result, options: flags.BenchRequest) -> None:
    """The files that were asked for beside that of --json. Raises UsageError."""
    if options.plot and not any(each.series for each in result.measured):
        printing.print_error(NOTHING.format(options.plot), command_line.NAME, "note")
    elif options.plot:
        from spawnlaunch.bench import plot

        plot.draw(result, options.plot)
    for path, text in ((options.csv, as_csv), (options.markdown, as_markdown)):
        if path and path != flags.STDOUT:
            try:
                Path(path).write_text(text(result), encoding="utf-8")
            except OSError as error:
                raise record.unwritable(path, error) from None


def for_stdout(result: results.Result, options: flags.BenchRequest) -> str:
    """What is printed in place of the page; "" for nothing."""
    if options.csv == flags.STDOUT:
        return as_csv(result).rstrip()
    return as_markdown(result).rstrip() if options.markdown == flags.STDOUT else ""

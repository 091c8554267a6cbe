"""The ratios with their intervals and verdicts, as a forest plot beside the samples.

It reads in black and white: a verdict has a mark of its own, and stands there in words too.
"""

from collections.abc import Sequence
from typing import Any

from spawnlaunch.bench import results, stats, table

MARKS = {stats.BETTER: ("s", "black"), stats.WORSE: ("s", "black"), stats.EQUAL: ("o", "white")}
OPEN = ("D", "white")  # undecided
ROW_INCHES = 0.2
HEAD_INCHES = 0.9
LEAST_SPAN = 1.1  # of the axis, to either side of 1
MOST_SPAN = 20.0
KEY = "ratio above 1: better. Square: differs, circle: equal, diamond: undecided; dashed: \
{delta:.0%} to either side, arrow: the interval goes on"


def inches(drawn: Sequence[results.Row]) -> float:
    """The height of the plot; 0 where nothing was compared."""
    return HEAD_INCHES + ROW_INCHES * _lines(drawn) if drawn else 0.0


def _lines(drawn: Sequence[results.Row]) -> int:
    """A row each, and one above those of a workload for its name."""
    return len(drawn) + len({row.workload for row in drawn})


def draw(axes: Any, drawn: Sequence[results.Row]) -> None:
    """All rows, workload by workload, from the top."""
    span = _span([row.comparison for row in drawn])
    axes.set_xscale("log")
    axes.set_xlim(1 / span, span)
    axes.set_ylim(_lines(drawn), -1)
    axes.axvline(1, color="black", linewidth=0.8)
    for side in (1 + stats.DELTA, 1 / (1 + stats.DELTA)):
        axes.axvline(side, color="0.5", linewidth=0.6, linestyle="--")
    at, workload = -1, ""
    for row in drawn:
        at += 1
        if row.workload != workload:
            workload = row.workload
            axes.text(-0.01, at, workload, ha="right", va="center", fontsize=8, weight="bold",
                      transform=axes.get_yaxis_transform())  # fmt: skip
            at += 1
        _row(axes, at, row, span)
    ticks = [tick for tick in (0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 1, 1.1, 1.25, 2, 5, 10, 20)
             if 1 / span <= tick <= span]  # fmt: skip
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=7)
    axes.set_xticks([], minor=True)
    axes.set_yticks([])
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_title(KEY.format(delta=stats.DELTA), fontsize=8, loc="left")


def _row(axes: Any, at: int, row: results.Row, span: float) -> None:
    found = row.comparison
    low, high = max(found.low, 1 / span), min(found.high, span)
    axes.hlines(at, low, high, color="black", linewidth=1.2)
    for end, is_cut, mark in ((low, found.low < low, "<"), (high, found.high > high, ">")):
        if is_cut:
            axes.plot(end, at, mark, color="black", markersize=5, clip_on=False)
    mark, face = MARKS.get(found.verdict, OPEN)
    middle = min(max(found.ratio, 1 / span), span)
    axes.plot(middle, at, mark, markersize=5, markerfacecolor=face, markeredgecolor="black")
    across = axes.get_yaxis_transform()
    axes.text(-0.01, at, f"{row.arm} to {row.against}", ha="right", va="center", fontsize=7,
              transform=across)  # fmt: skip
    said = f"{found.ratio:.3f} ({table.interval(found)}) {table.verdict(found)}"
    axes.text(1.01, at, said, ha="left", va="center", fontsize=7, transform=across)


def _span(drawn: Sequence[stats.Comparison]) -> float:
    """How far to either side of 1: all estimates, and all intervals that are not undecided."""
    ends = [max(each.ratio, 1 / each.ratio) for each in drawn]
    ends += [
        max(each.high, 1 / each.low)
        for each in drawn
        if each.low and each.verdict != stats.UNDECIDED
    ]
    return min(MOST_SPAN, max([LEAST_SPAN, *(1.1 * end for end in ends)]))

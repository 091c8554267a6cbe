"""A result as a picture: samples by arm and rank, and the ratios. Bindings are on the page.

It has to read in black and white: ranks are told apart by their place and their number, never by
colour. A rank's samples are a thin line from least to most, a thick one between the quartiles, and
a white dot for the median.
"""

import importlib
import textwrap
from typing import Any

import numpy as np

from spawnlaunch import errors
from spawnlaunch.bench import forest, record, results

COLUMNS = 2  # panels side by side
PANEL_INCHES = (6.5, 2.8)
TITLE_CHARS = 78
GAP = 0.9  # between two arms, in ranks
MARGIN_INCHES = 1.0  # for the heading and the key
KEY = "samples of each rank: thin line least to most, thick line quartiles, dot median; below its \
number"
NUMBERED = 16  # the most ranks whose numbers can be read below their samples


def need_matplotlib() -> None:
    """Raises UsageError where it is not installed: before the measurement, not after."""
    try:
        importlib.import_module("matplotlib")
    except ImportError:
        raise errors.UsageError(
            "--plot needs matplotlib; type pip install 'spawnlaunch[plots]'"
        ) from None


def draw(result: results.Result, path: str) -> None:
    """Write the picture; the end of the name says of which kind. Raises UsageError."""
    panels = [(each, series) for each in result.measured for series in each.series]
    rows = -(-len(panels) // COLUMNS)
    ratios = results.headline(results.rows(result))
    heights = [PANEL_INCHES[1]] * rows
    heights += [forest.inches(ratios)] if ratios else []
    figure_class = importlib.import_module("matplotlib.figure").Figure
    figure: Any = figure_class(
        figsize=(COLUMNS * PANEL_INCHES[0], sum(heights) + MARGIN_INCHES), layout="constrained"
    )
    grid = figure.add_gridspec(len(heights), COLUMNS, height_ratios=heights)
    for i, (measured, series) in enumerate(panels):
        row, column = divmod(i, COLUMNS)
        to = COLUMNS if i == len(panels) - 1 else column + 1  # the last has the rest of its row
        _panel(figure.add_subplot(grid[row, column:to]), result, measured, series)
    if ratios:
        forest.draw(figure.add_subplot(grid[len(heights) - 1, :]), ratios)
    figure.suptitle(_heading(result), fontsize=9)
    figure.supxlabel(KEY, fontsize=8, x=0.02, ha="left")
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise record.unwritable(path, error) from None


def _heading(result: results.Result) -> str:
    hosts = ", ".join(f"{node['host']}: {node['processor']}" for node in result.nodes[:2])
    more = f" and {len(result.nodes) - 2} more nodes" if len(result.nodes) > 2 else ""
    counts = sorted({measured.rounds for measured in result.measured})
    rounds = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1])))) if counts else "no"
    day, _, _ = result.about["date"].partition("T")
    return f"What a binding is worth on {hosts}{more}: {rounds} rounds on {day}"


def _panel(axes: Any, result: results.Result, measured: results.Measured, series: str) -> None:
    """The samples of one series, a group for each arm and a place in it for each rank."""
    workload, samples = measured.workload, measured.series[series]
    names = measured.there
    ranks, floor = result.ranks, axes.get_xaxis_transform()  # where numbers of ranks stand
    width = ranks + GAP
    for group, name in enumerate(names):
        for rank in range(ranks):
            at = group * width + rank
            values = [
                each[rank] for each in samples[name] if rank < len(each) and each[rank] is not None
            ]
            if values:
                _spread(axes, at, np.array(values))
            if ranks <= NUMBERED:
                axes.text(at, 0.01, str(rank), ha="center", fontsize=6, transform=floor)
        if group:
            axes.axvline(group * width - (1 + GAP) / 2, color="0.8", linewidth=0.6)
    axes.set_xlim(-1, len(names) * width - GAP)
    axes.set_xticks([group * width + (ranks - 1) / 2 for group in range(len(names))], names)
    axes.tick_params(axis="x", length=0)
    axes.set_ylim(bottom=0)
    axes.margins(y=0.1)
    axes.set_ylabel(workload.unit)
    axes.spines[["top", "right"]].set_visible(False)
    better = "more" if workload.higher_is_better else "less"
    text = f"{workload.name}{f', {series}' if series else ''}: {better} is better; by arm and rank"
    axes.set_title(textwrap.shorten(text, TITLE_CHARS), fontsize=9, loc="left")


def _spread(axes: Any, at: float, values: Any) -> None:
    """The samples of one rank under one arm."""
    least, low, middle, high, most = np.quantile(values, (0, 0.25, 0.5, 0.75, 1))
    axes.vlines(at, least, most, color="black", linewidth=0.8)
    axes.vlines(at, low, high, color="black", linewidth=4.5)
    axes.plot(at, middle, "o", markersize=4, markerfacecolor="white", markeredgecolor="black")

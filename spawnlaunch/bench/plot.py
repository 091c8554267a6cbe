"""The differences as a picture: one point with its interval for each arm and workload."""

import importlib
import os
from typing import Any

from spawnlaunch.base import commands, errors
from spawnlaunch.bench import command_line, recommendation, results
from spawnlaunch.workers import files

ROW_INCHES, MARGIN_INCHES, WIDTH_INCHES = 0.35, 1.5, 8.0


def need_matplotlib() -> None:
    """Raises UsageError before the measurement where matplotlib is not installed."""
    try:
        importlib.import_module("matplotlib")
    except ImportError:
        raise errors.UsageError(
            "--plot needs matplotlib; use pip install 'spawnlaunch[plots]'"
        ) from None


def draw(result: results.Result, path: str) -> None:
    """Write the picture in the format that the file's extension names. Raises UsageError."""
    rows = [row for row in results.headline(results.rows(result)) if row.comparison.low > 0]
    if not rows:
        text = f"--plot {path}: no difference has an interval, so there is nothing to draw"
        commands.print_error(text, command_line.NAME, "note")
        return
    size = (WIDTH_INCHES, ROW_INCHES * len(rows) + MARGIN_INCHES)
    figure: Any = importlib.import_module("matplotlib.figure").Figure(size, layout="constrained")
    axes = figure.add_subplot()
    comparisons = [row.comparison for row in rows]
    ends = ([c.ratio - c.low for c in comparisons], [c.high - c.ratio for c in comparisons])
    axes.errorbar([c.ratio for c in comparisons], range(len(rows)), xerr=ends, fmt="ok", capsize=3)
    axes.set_yticks(range(len(rows)), [f"{row.workload}: {row.arm}" for row in rows])
    axes.invert_yaxis()
    axes.axvline(1, color="0.5", linewidth=0.8)
    axes.set_xlabel(f"times as fast as {result.against}, with the interval")
    axes.set_title(recommendation.advise(result).text, fontsize=9, loc="left", wrap=True)
    try:
        with open(files.opened(path, os.O_WRONLY | os.O_TRUNC), "wb") as file:
            figure.savefig(file, dpi=150, format=os.path.splitext(path)[1][1:])
    except OSError as error:
        raise results.unwritable(path, error) from None

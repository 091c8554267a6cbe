"""A picture of a run, drawn from its metrics."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from .errors import RefusedError
from .metrics import read

PICTURE = "plot.png"


def need_matplotlib() -> None:
    """Raises RefusedError where it is not installed: at the start, not after hours of training."""
    try:
        importlib.import_module("matplotlib")
    except ImportError as error:
        raise RefusedError(
            "--plot needs matplotlib; type pip install 'spawnlaunch[plots]'", shared=True
        ) from error


def plot(metrics: Path, picture: Path, unit: str) -> None:
    """Loss and throughput over the steps, as a PNG."""
    figure_class = importlib.import_module("matplotlib.figure").Figure
    lines = read(metrics)
    figure: Any = figure_class(figsize=(8, 6), layout="constrained")
    losses, speeds = figure.subplots(2, 1, sharex=True)
    losses.plot(*_curve(lines, "loss"), label="training")
    losses.plot(*_curve(lines, "validation_loss"), "o-", label="validation")
    losses.set_title(metrics.parent.name)
    losses.set_ylabel(f"loss ({unit.strip()})" if unit else "loss")
    losses.legend()
    speeds.plot(*_curve(lines, "samples_per_second"))
    speeds.set_ylabel("samples per second")
    speeds.set_ylim(bottom=0)
    speeds.set_xlabel("step")
    figure.savefig(picture)


def _curve(lines: list[dict[str, Any]], name: str) -> tuple[list[int], list[float]]:
    points = [(line["step"], line[name]) for line in lines if line.get(name) is not None]
    return [step for step, _ in points], [value for _, value in points]

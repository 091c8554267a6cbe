"""The metrics file of a run, read again: for a picture, and to go on behind some step."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import needed

MATPLOTLIB = "matplotlib.figure", "plots"


def go_back_to(path: Path, step: int, evaluated: bool) -> None:
    """Forget what came after ``step``, and its validation too where that is done again."""
    kept = [line for line in read(path) if _before(line, step, evaluated)]
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in kept)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _before(line: Mapping[str, Any], step: int, evaluated: bool) -> bool:
    at = int(line["step"])
    return at < step or (at == step and (evaluated or "validation_loss" not in line))


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics file, without what a killed run or machine left half written."""
    lines = []
    for text in path.read_bytes().split(b"\n")[:-1]:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and "step" in line:
            lines.append(line)
    return lines


def plot(metrics: Path, picture: Path, unit: str) -> None:
    """Loss and throughput over the steps, as a PNG."""
    lines = read(metrics)
    figure: Any = needed(*MATPLOTLIB).Figure(figsize=(8, 6), layout="constrained")
    losses, speeds = figure.subplots(2, 1, sharex=True)
    losses.plot(*_curve(lines, "loss"), label="training")
    losses.plot(*_curve(lines, "validation_loss"), "o-", label="validation")
    losses.set(title=metrics.parent.name, ylabel=f"loss ({unit.strip()})" if unit else "loss")
    losses.legend()
    speeds.plot(*_curve(lines, "samples_per_second"))
    speeds.set(ylabel="samples per second", xlabel="step")
    speeds.set_ylim(bottom=0)
    figure.savefig(picture)


def _curve(lines: list[dict[str, Any]], name: str) -> tuple[list[int], list[float]]:
    points = [(line["step"], line[name]) for line in lines if line.get(name) is not None]
    return [step for step, _ in points], [value for _, value in points]

"""Read the metrics file of a run, and cut it where a resumed run goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import files


def go_back_to(path: Path, step: int, evaluated: bool) -> None:
    """Remove the lines after ``step``, and its validation too unless it was ``evaluated``."""
    kept = [line for line in read(path) if _before(line, step, evaluated)]
    part = path.with_name(path.name + ".part")
    with files.open_text(part, "w") as file:
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

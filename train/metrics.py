"""The numbers of a run as JSON lines: always there, and exactly once."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Metrics:
    """One JSON object a line, each appended in one write, so that a reader sees whole lines.

    Without a path nothing is written, which is how every rank but 0 keeps its metrics.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def write(self, values: Mapping[str, Any]) -> None:
        """Append the values; a number that is not finite becomes null, as JSON has no other way."""
        if self.path is None:
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({name: known(value) for name, value in values.items()}) + "\n")

    def go_back_to(self, step: int, evaluated: bool) -> None:
        """Forget what came after ``step``, and its validation too where that is done again."""
        if self.path is None:
            return
        kept = [line for line in read(self.path) if _before(line, step, evaluated)]
        part = self.path.with_name(self.path.name + ".part")
        with part.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in kept)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.path)


def _before(line: Mapping[str, Any], step: int, evaluated: bool) -> bool:
    at = int(line["step"])
    return at < step or (at == step and (evaluated or "validation_loss" not in line))


def known(value: Any) -> Any:
    """The value, or None for a number that JSON has no way to write."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


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

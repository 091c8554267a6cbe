"""A record, read again: the last launch of each node's file, with the samples as curves.

What cannot be read, as a line that a killed machine left half written, is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

POINTS = 400  # of a curve, at most: more than a page has room for

Curve = Sequence[tuple[float, float | None]]  # seconds since the start, and the value


class Story(NamedTuple):
    """One launch, of all nodes that have a file."""

    starts: Sequence[Mapping[str, Any]]  # of the nodes, in their order
    events: Sequence[Mapping[str, Any]]  # all but samples, in the order of their times
    curves: Mapping[str, Mapping[int, Curve]]  # by figure and rank
    began: float  # seconds since 1970
    ended: float

    def of_kind(self, kind: str) -> list[Mapping[str, Any]]:
        """The events of a kind."""
        return [event for event in self.events if event["kind"] == kind]


def read(directory: str) -> Story | None:
    """The record in a directory; None where there is none."""
    files = sorted(Path(directory).glob("node*.jsonl"), key=lambda file: (len(file.name), file))
    launches = [lines for lines in map(_last_launch, files) if lines]
    if not launches:
        return None
    lines = sorted((line for each in launches for line in each), key=lambda line: line["time"])
    began = lines[0]["time"]
    return Story(
        starts=sorted(map(_as_begun, launches), key=_first_rank),
        events=[line for line in lines if line["kind"] != "sample"],
        curves=_curves((line for line in lines if line["kind"] in ("sample", "attempt")), began),
        began=began,
        ended=lines[-1]["time"],
    )


def _last_launch(file: Path) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    with file.open(encoding="utf-8", errors="replace") as opened:
        for text in opened:
            try:
                line = json.loads(text)
                float(line["time"]), str(line["kind"])
            except (ValueError, TypeError, KeyError):
                continue
            if line["kind"] == "start":
                lines = []
            lines.append(line)
    return lines if lines and lines[0]["kind"] == "start" else []


def _as_begun(lines: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The start of a node, with its workers as those of the last attempt were.

    Launchers of several nodes do not know their ranks before they have met.
    """
    start = lines[0]
    last = next((line for line in reversed(lines) if line["kind"] == "attempt"), None)
    if last is None or not last["pids"]:
        return start
    told = start["explain"]
    ranks = [worker["rank"] for worker in told["workers"]]
    first, world = min(map(int, last["pids"])), last.get("world", {})
    of_role = int(world.get("ROLE_RANK", first))
    workers = []
    for worker in told["workers"]:
        i = worker["rank"] - min(ranks)
        own = {**world, "RANK": str(first + i), "ROLE_RANK": str(of_role + i)}
        workers.append({**worker, "rank": first + i, "env": {**worker["env"], **own}})
    size = int(world.get("WORLD_SIZE", told["world"]["world_size"]))
    placed = {**told["world"], "world_size": size}
    return {**start, "explain": {**told, "world": placed, "workers": workers}}


def _first_rank(start: Mapping[str, Any]) -> int:
    return int(start["explain"]["workers"][0]["rank"])


def _curves(samples: Iterable[Mapping[str, Any]], began: float) -> dict[str, dict[int, Curve]]:
    curves: dict[str, dict[int, list[tuple[float, Any]]]] = {}
    for line in samples:
        after_s = line["time"] - began
        if line["kind"] == "attempt":  # other processes: nothing leads from those before to them
            for by_rank, rank in product(curves.values(), map(int, line["pids"])):
                by_rank.setdefault(rank, []).append((after_s, None))
            continue
        for name, values in line.items():
            if name in ("kind", "time", "ranks") or not isinstance(values, list):
                continue
            for rank, value in zip(line["ranks"], values, strict=False):
                curves.setdefault(name, {}).setdefault(rank, []).append((after_s, value))
    return {
        name: {rank: thinned(points) for rank, points in sorted(by_rank.items())}
        for name, by_rank in curves.items()
    }


def thinned(points: Sequence[tuple[float, Any]]) -> Sequence[tuple[float, Any]]:
    """At most POINTS of them: of neighbours the one that stands out most, so that peaks stay."""
    if len(points) <= POINTS or not all(isinstance(v, (int, float, type(None))) for _, v in points):
        return points
    size = -(-len(points) // POINTS)
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    return [
        next((point for point in group if point[1] is None), None)
        or max(group, key=lambda point: point[1] or 0)
        for group in groups
    ]

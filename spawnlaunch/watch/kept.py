"""What the record of a running launch has noted: `top --once` has no history of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

import psutil

from spawnlaunch.watch import notes, sample, table

OVER_TIME = ("grows", "uneven")  # what one look cannot show
ATTEMPT = '"kind": "attempt"'
ABOVE = 3  # processes between a rank and its launcher: the guard, and the image of --preload


def findings(samples: Sequence[sample.Sample]) -> dict[str, list[notes.Note]]:
    """By launch, what was noted since its workers were started last."""
    found = {}
    for launch, ranks in sample.by_launch(samples).items():
        with suppress(psutil.Error, OSError, ValueError, LookupError, TypeError):
            found[launch] = [*_noted(launch, ranks[0].pid)]
    return found


def _noted(launch: str, pid: int) -> Iterator[notes.Note]:
    name = f"*-{launch.rpartition('-')[2]}.jsonl"  # a rank may have files of its own open
    paths = (path for path in _written_above(pid) if fnmatch(path, name))
    records = (Path(path).read_text().split("\n")[:-1] for path in paths)
    lines = next((each for each in records if json.loads(each[0])["launch"] == launch), [])
    told = [json.loads(line) for line in lines if '"kind": "note"' in line or ATTEMPT in line]
    begun = max((i for i, one in enumerate(told) if one["kind"] == "attempt"), default=-1)
    for one in told[begun + 1 :]:
        if one["note"] in OVER_TIME:
            ago = table.age(max(0.0, time.time() - one["time"]))
            words = f"{one['words']} ({ago} ago, by the record)"
            yield notes.Note(one["rank"], one["note"], words)


def _written_above(pid: int) -> Iterator[str]:
    """The records that children of the processes above it write."""
    for process in psutil.Process(pid).parents()[:ABOVE]:
        for child in process.children():
            with suppress(psutil.Error):
                yield from (each.path for each in child.open_files() if ".jsonl" in each.path)

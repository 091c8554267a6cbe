"""What spawnlaunch.top says of the ranks of one launch, and the processes that it has."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.launching import run
from tests.support.processes import children

TOP = (sys.executable, "-m", "spawnlaunch.top")


def looked_at(pids: Mapping[int, int]) -> dict[int, dict[str, Any]]:
    """What --json says of these processes, by rank; `pids` are the ranks of pids."""
    done = run(*TOP, "--once", "--json")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {one["rank"]: one for one in found if one.get("pid") in pids}


def ready(output: str) -> dict[int, tuple[int, int]]:
    """The pids of workers/busy.py and of its child, by rank."""
    lines = [line.split() for line in output.splitlines() if line.startswith("ready")]
    return {int(rank): (int(pid), int(child)) for _, rank, pid, child in lines}


def recorder_and_guard(launcher: int) -> tuple[int, int]:
    """The two children of a launcher with --record."""
    names = {Path(f"/proc/{pid}/comm").read_text().strip(): pid for pid in children(launcher)}
    guard = names.pop("spawnlaunch grd")
    (recorder,) = names.values()
    return recorder, guard

"""What a launcher would do on a machine of facts, asked in process."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spawnlaunch import walk
from spawnlaunch.cli import flags
from tests.machines.tree import IN_MEMORY, Machine, build


def explain(
    machine: Machine, arguments: str, environ: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What --explain=json prints for a launch of this machine's ranks. Raises UsageError."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        root = build(Path(folder), machine)
        line = f"--explain=json --sysfs-root {root} {arguments} --no-python true"
        try:
            walk.walk(line.split(), environ or {}, (), frozenset())
        except flags.Page as page:
            told: dict[str, Any] = json.loads(str(page))
            return told
    raise AssertionError("a launcher that explains has launched")

"""The modules that a launch imports."""

import re
import sys
from pathlib import Path

from tests.counts.ways import Way
from tests.support.launching import run

# Imported when all workers have ended, or before, where a launch has lasted for some seconds.
FOR_THE_END = re.compile(r"\b_?json\b|\bspawnlaunch.run.(errorfile|report|result|unkillable)\b")


def imported(way: Way, directory: Path, *words: str) -> set[str]:
    """The names of all modules that Python imports to run these words; a worker tells none."""
    said = run(
        sys.executable, "-X", "importtime", *words, environ=way.environ(), cwd=directory, check=True
    ).stderr
    names = re.findall(r"^import time: .*\| +(\S+)$", said, re.MULTILINE)
    return {name for name in names if not FOR_THE_END.search(name)}

"""The modules that a launch imports."""

import re
import sys
from pathlib import Path

from tests.counts.ways import Way
from tests.support.launching import run


def imported(way: Way, directory: Path, *words: str) -> set[str]:
    """The names of all modules that Python imports to run these words; a worker tells none."""
    said = run(sys.executable, "-X", "importtime", *words, environ=way.environ(), cwd=directory)
    return set(re.findall(r"^import time: .*\| +(\S+)$", said.stderr, re.MULTILINE))

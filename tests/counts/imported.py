"""The modules that a launch imports."""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.counts.ways import Way
from tests.support.launching import run

# Imported when all workers have ended, or before, where a launch has lasted for a second, as on a
# busy machine; and what that imports in its turn, which counts where a launch has not lasted.
OURS = "evidence|files|keyboard|leftovers|published|refused|removal|report|stops"
FOR_THE_END = re.compile(rf"\b_?json\b|\bspawnlaunch.failures\b|\bspawnlaunch.run.({OURS})\b")
WITH_IT = re.compile(r"(^|\W)(re|_sre|enum|copyreg|signal|fcntl|termios|resource|pwd)\b")


def imported(way: Way, directory: Path, *words: str) -> set[str]:
    """The names of all modules that Python imports to run these words; a worker tells none."""
    said = run(
        sys.executable, "-X", "importtime", *words, environ=way.environ(), cwd=directory, check=True
    ).stderr
    names = re.findall(r"^import time: .*\| +(\S+)$", said, re.MULTILINE)
    return set(at_once(names))


def at_once(names: Iterable[str]) -> list[str]:
    """Those of modules or files that a launch needs to run."""
    names = list(names)
    kept = [name for name in names if not FOR_THE_END.search(name)]
    if len(kept) == len(names):
        return names
    return [name for name in kept if not WITH_IT.search(name)]

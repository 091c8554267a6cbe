"""Find an active Python environment of the shell that is not the one of the workers' Python.

Imported only after a launch has failed.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping

ACTIVE = ("VIRTUAL_ENV", "CONDA_PREFIX")  # the inner one first: a venv may be inside conda's
MISSING = ("ModuleNotFoundError", "No module named", "ImportError")


def other(python: str, environ: Mapping[str, str], words: str | None) -> str:
    """The line about an active environment, where a worker's `words` name a missing module.

    "": there is no other environment, or no module is missing. `words` None: they are unknown.
    """
    name = next((name for name in ACTIVE if environ.get(name)), "")
    if not name or (words is not None and not any(each in words for each in MISSING)):
        return ""
    place = environ[name]
    prefix = sys.prefix if python == sys.executable else os.path.dirname(os.path.dirname(python))
    if os.path.realpath(place) == os.path.realpath(prefix):
        return ""
    there = os.path.join(place, "bin", "python")
    when = "" if words else "if a module is missing: "
    line = f"{when}workers run {python}, and the active environment is another ({name}={place})"
    if os.path.exists(there):
        return f"{line}; to have that one, put PYTHON_EXEC={shlex.quote(there)} before the command"
    return f"{line}, which has no {there}; unset {name}"

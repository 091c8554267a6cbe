"""Set sys.path for spawnlaunch's own programs under `python -m`: Python's library comes first.

With -m the working directory is first, so that a json.py there, or in a directory of PYTHONPATH,
would be imported in place of Python's. So a program calls this before it imports anything else. The
modules that this file imports are built in, or Python has imported them at its start.
"""

import os
import sys


def take() -> list[str]:
    """Remove the working directory from sys.path, and put Python's library before PYTHONPATH.

    Returns sys.path as it was before: a caller of `runpy` restores it.
    """
    before = sys.path[:]
    try:
        if not getattr(sys.flags, "safe_path", False) and sys.path[0] in ("", os.getcwd()):
            del sys.path[0]
    except OSError:
        pass  # the directory has been deleted, and Python has not added it
    library_first()
    return before


def library_first() -> None:
    """Look for modules in Python's own library before PYTHONPATH."""
    library = os.path.dirname(os.__file__)
    sys.path.sort(key=lambda path: path not in (library, f"{library}/lib-dynload"))

"""Where a program of ours that `python -m` starts looks for modules: Python's own come first.

With -m the working directory is the first place, and a json.py there, or where PYTHONPATH leads,
would be taken for Python's. So a program calls this before it imports anything else; what is
imported here is built in, or imported by Python itself before.
"""

import os
import sys


def take() -> list[str]:
    """Take the working directory off sys.path, and put Python's library before PYTHONPATH.

    The result is sys.path as it was: who has called `runpy` wants it back.
    """
    before = sys.path[:]
    try:
        if not getattr(sys.flags, "safe_path", False) and sys.path[0] in ("", os.getcwd()):
            del sys.path[0]
    except OSError:
        pass  # the directory has been deleted, and Python has not put it there
    library_first()
    return before


def library_first() -> None:
    """Look for modules in Python's own library before PYTHONPATH."""
    library = os.path.dirname(os.__file__)
    sys.path.sort(key=lambda path: path not in (library, f"{library}/lib-dynload"))

"""The launcher, as `spawnlaunch.launch` starts it.

    python launcher.py PID DIRECTORY [flags] worker.py DIRECTORY

The same as `python -m spawnlaunch [flags] worker.py DIRECTORY`, but that it ends, as by SIGTERM,
when process PID is gone, and removes the directory in its stead; and that an error or a page goes
to a file there, so that the caller can tell it from what workers say.
"""

import os
import sys

if __name__ == "__main__":  # started by path: the package is the one that this file is in
    sys.path[0] = os.path.abspath(f"{__file__}/../../..")
    import spawnlaunch  # noqa: F401

    del sys.path[0]

from spawnlaunch.__main__ import BLOCKED  # first of all: it makes this process a launcher
from spawnlaunch.calling.shipping import PAGE, REFUSED
from spawnlaunch.errors import WRONG_USE, UsageError, internal_error
from spawnlaunch.node import kernel
from spawnlaunch.request import Page
from spawnlaunch.run import files
from spawnlaunch.run.signals import signal
from spawnlaunch.walk import walk


def main() -> int:
    """Launch; the result is the exit status."""
    caller, directory = int(sys.argv[1]), sys.argv[2]
    kernel.die_with_parent(caller, signal.SIGTERM)
    try:
        return walk(sys.argv[3:], dict(os.environ), (), BLOCKED)
    except UsageError as error:
        _leave(directory, REFUSED, str(error))
        return WRONG_USE
    except Page as page:
        _leave(directory, PAGE, str(page))
        return 0
    except Exception as error:
        if os.environ.get("SPAWNLAUNCH_DEBUG"):
            raise
        _leave(directory, REFUSED, internal_error(error))
        return os.EX_SOFTWARE
    finally:
        if os.getppid() != caller:
            files.remove_tree(directory)


def _leave(directory: str, name: str, text: str) -> None:
    with open(os.path.join(directory, name), "w", errors="backslashreplace") as file:
        file.write(text)


if __name__ == "__main__":
    sys.exit(main())

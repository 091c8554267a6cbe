"""The launcher, as `spawnlaunch.launch` starts it.

    python called.py PID DIRECTORY [flags] worker.py DIRECTORY

It differs from `python -m spawnlaunch [flags] worker.py DIRECTORY` in four points. It ends, as by
SIGTERM, when process PID is gone, and removes the directory in its stead. An error goes to a file
there, so that the caller can tell it from the workers' output. With --quiet all of the launcher's
own output goes there. And a worker that ends with 0 and has left no outcome there has failed.
"""

import os
import sys
from contextlib import suppress
from functools import partial

if __name__ == "__main__":  # started by path: the package is the one that has this file
    sys.path[0] = os.path.abspath(f"{__file__}/../../..")
    from spawnlaunch import __main__ as spawnlaunch_main

    del sys.path[0]
    BLOCKED = spawnlaunch_main.take_process()  # before anything else of ours is imported

from spawnlaunch import walk
from spawnlaunch.base import errors, machine, say, signals
from spawnlaunch.base.signals import signal
from spawnlaunch.calling import sending
from spawnlaunch.multinode import announcements
from spawnlaunch.workers import launches


def main(caller: int, directory: str, argv: list[str]) -> int:
    """Run the launch; the result is the exit status."""
    machine.die_with_parent(caller, signal.SIGTERM)
    signals.detach()  # Ctrl-C comes from the caller, and once
    try:
        if "--quiet" in argv:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            say.stream[0] = os.open(os.path.join(directory, sending.SAID), flags, 0o600)
        launch = walk.plan(argv, dict(os.environ), (), BLOCKED)
        return walk.go(launch._replace(exit_zero_is_failure=partial(_has_no_outcome, directory)))
    except Exception as error:
        line, status = say.describe_fatal(error)
        if os.environ.get("SPAWNLAUNCH_DEBUG") and status != errors.WRONG_USE:
            raise
        _leave(directory, sending.REFUSED, line)
        announcements.announce(argv, os.environ, status, line)
        return status
    finally:
        if os.getppid() != caller:
            with suppress(OSError):
                machine.remove_tree(directory)


def _has_no_outcome(directory: str, worker: launches.Worker) -> bool:
    """Whether a worker has left no outcome, which is printed and noted for the caller."""
    name = f"{worker.environ['TORCHELASTIC_RESTART_COUNT']}.{worker.rank}"
    if os.path.exists(os.path.join(directory, name)):
        return False
    line = f"{worker.name} exited with status 0 before its function returned"
    say.say([f"{line}, which counts as status 1"])
    _leave(directory, name + sending.UNFINISHED, line)
    return True


def _leave(directory: str, name: str, text: str) -> None:
    """Write a file for the caller, unless the directory has been removed."""
    path = os.path.join(directory, name)
    with suppress(OSError), open(path, "w", errors="backslashreplace") as file:
        file.write(text)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))

"""The launcher's entry: what comes first in its process, and how its errors are told."""

import gc
import signal

# Signals that are for the workers wait until there is somebody to pass them on: they would end us.
WORKERS_MASK = frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR1, signal.SIGUSR2)))
gc.disable()  # nothing is garbage yet, and looking for it is a tenth of what a launch costs
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C from here on without a traceback of ours

import os
import sys

if os.getpid() == 1:  # of a container: for that process the kernel has no default actions
    for _stop in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(_stop) is signal.SIG_DFL:
            signal.signal(_stop, lambda signum, _: os._exit(128 + signum))

from spawnlaunch.cli import Page
from spawnlaunch.errors import UsageError
from spawnlaunch.run.say import say
from spawnlaunch.walk import walk


def main() -> int:
    """Run the command line of this process; the result is its exit status."""
    closed = _closed_streams()
    try:
        return walk(sys.argv[1:], dict(os.environ), closed, WORKERS_MASK)
    except UsageError as error:
        from spawnlaunch.run import once

        once.refuse(error, os.environ)
        return 2
    except Page as page:
        return _print(str(page), closed)
    except Exception as error:
        if os.environ.get("SPAWNLAUNCH_DEBUG"):
            raise
        say(
            [
                f"internal error: {type(error).__name__}: {error}; this is a fault of spawnlaunch, "
                "set SPAWNLAUNCH_DEBUG=1 to see where"
            ]
        )
        return os.EX_SOFTWARE


def _closed_streams() -> tuple[str, ...]:
    """The names of the standard streams that are closed; from here on they are /dev/null."""
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return ()
    from spawnlaunch.run import terminal

    return terminal.hold_closed()


def _print(text: str, closed: tuple[str, ...]) -> int:
    """Write to stdout; the result is the exit status.

    Where nobody reads it to the end we die of SIGPIPE, as other programs do.
    """
    if "stdout" in closed:
        say(["error: cannot write to stdout: it is closed"])
        return os.EX_IOERR
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    data = text.encode(sys.stdout.encoding, "backslashreplace")  # a variable may be in any encoding
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError as error:
        say([f"error: cannot write to stdout: {error.strerror}"])
        return os.EX_IOERR
    return 0


if __name__ == "__main__":
    sys.exit(main())

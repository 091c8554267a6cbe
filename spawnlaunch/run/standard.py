"""Standard streams that were closed when we were started, as `<&- >&- 2>&-` does in a shell.

The next descriptor that anybody opens would take their number, and what is written to "stdout"
would end in a pipe of ours. Only a launch that has such a stream imports this.
"""

import os
import sys

NAMES = ("stdin", "stdout", "stderr")


def hold() -> tuple[str, ...]:
    """Put /dev/null where a standard stream is closed, for the workers too; their names.

    Python has None in place of a stream that was closed at its start.
    """
    closed = tuple(name for name in NAMES if getattr(sys, name) is None)
    for name in closed:
        fd, mode = NAMES.index(name), "r" if name == "stdin" else "w"
        null = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free (open(2))
        if null != fd:
            os.dup2(null, fd)
            os.close(null)
        os.set_inheritable(fd, True)
        setattr(sys, name, open(fd, mode, closefd=False))  # noqa: SIM115  it stays open to the end
    return closed

"""Our terminal and our standard streams: who waits at a prompt there, and which are closed."""

from __future__ import annotations

import os
import sys

NAMES = ("stdin", "stdout", "stderr")


def hold_closed() -> tuple[str, ...]:
    """Put /dev/null where a standard stream was closed at our start, as by `>&-`; their names.

    The next descriptor that anybody opens would take their number, and what is written to "stdout"
    would end in a pipe of ours. Python has None in place of such a stream.
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


def prompt_is_open() -> bool:
    """Whether a program reads the terminal key by key, as readline, pdb and editors do.

    They take Ctrl-C as a key of theirs, and not as the end of the job. (A terminal that hands out
    whole lines is in "canonical mode": termios(3).)
    """
    import termios  # needed after Ctrl-C only

    try:
        fd = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return not termios.tcgetattr(fd)[3] & termios.ICANON
    except termios.error:
        return False
    finally:
        os.close(fd)

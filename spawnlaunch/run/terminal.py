"""Our terminal: how wide it is, and whether somebody waits at a prompt there."""

import os
from contextlib import suppress

UNKNOWN_COLUMNS = 80  # of a terminal that does not tell


def columns() -> int | None:
    """The width of the terminal that our stdout is; None where it is none."""
    try:
        return os.get_terminal_size(1).columns or UNKNOWN_COLUMNS
    except OSError:
        return None


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


def join(group: int) -> None:
    """Enter the process group that has the terminal."""
    with suppress(OSError):  # in another session, or ended: then there is no terminal to share
        os.setpgid(0, group)

"""Who waits at a prompt on our terminal."""

from __future__ import annotations

import os


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

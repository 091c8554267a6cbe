"""Our terminal and our standard streams: which are closed, and what workers are told of it."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

COLOURS = {"FORCE_COLOR": 1, "CLICOLOR_FORCE": 1, "PY_COLORS": 1, "TTY_INTERACTIVE": 0}
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


def welcome(environ: Mapping[str, str], columns: object) -> dict[str, object]:
    """What tells a worker of our terminal, to which a pipe leads from its stdout.

    Its size, and the variables by which programs, and rich, are told to write colours; none that
    the user has set. A bar of several lines would be drawn
    across the lines of other ranks: so the terminal is no interactive one.
    """
    told: dict[str, object] = {"COLUMNS": columns, "LINES": os.get_terminal_size(1).lines or None}
    said = any(environ.get(name) for name in (*COLOURS, "NO_COLOR"))
    if not said and environ.get("TERM") not in (None, "", "dumb"):
        told |= COLOURS
    return {name: value for name, value in told.items() if name not in environ}

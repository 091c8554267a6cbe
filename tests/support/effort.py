"""What an action costs, in numbers that no other work on the machine changes."""

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import NamedTuple

OPENERS = (os.open, os.listdir, open)


class Effort(NamedTuple):
    """How often something was done."""

    calls: int  # of functions, in Python and in C; another version of Python makes a few more
    opened: int  # attempts to open a file or a directory


def effort(action: Callable[[], object]) -> Effort:
    """Run the action, and count what this thread does for it."""
    calls = opened = 0

    def see(_frame: FrameType, event: str, called: object) -> None:
        nonlocal calls, opened
        if event in ("call", "c_call"):
            calls += 1
            opened += event == "c_call" and called in OPENERS

    sys.setprofile(see)
    try:
        action()
    finally:
        sys.setprofile(None)
    return Effort(calls, opened)

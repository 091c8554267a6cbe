"""Messages to the person who typed the command, in one line from one worker."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


class RefusedError(Exception):
    """A run that cannot start as asked; its text is one line: what was seen, and what to type.

    ``shared`` says that every rank meets the same refusal, so that one of them may speak for all.
    """

    def __init__(self, text: str, *, shared: bool = False) -> None:
        super().__init__(text)
        self.shared = shared


class StoppedError(Exception):
    """A run that had to stop, for a reason that every rank knows and a traceback would not tell."""


def speaks() -> bool:
    """Whether this worker is the one that talks to the person; known before the workers meet."""
    rank = os.environ.get("RANK", "")
    return not rank.isdecimal() or int(rank) == 0


def refuse(refusal: RefusedError) -> NoReturn:
    """Exit with status 2 and say why; what all ranks refuse is said once, by rank 0."""
    if speaks():
        print(f"train: error: {refusal}", file=sys.stderr, flush=True)
    elif not refusal.shared:
        print(f"train: error: rank {os.environ['RANK']}: {refusal}", file=sys.stderr, flush=True)
    sys.exit(2)

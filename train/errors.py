"""Messages to the person who typed the command, in one line from one worker."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
from typing import Any, NoReturn

LET_SPEAK_S = 10.0


class RefusedError(Exception):
    """A run that cannot start as asked; its text is one line: what was seen, and what to type.

    ``shared`` says that every rank meets the same refusal, so that one of them may speak for all;
    ``met`` that the ranks had met before it.
    """

    def __init__(self, text: str, *, shared: bool = False, met: bool = False) -> None:
        super().__init__(text)
        self.shared = shared
        self.met = met


def shared_refusal(text: str) -> RefusedError:
    """One that every rank meets, so that one of them speaks for all."""
    return RefusedError(text, shared=True)


class StoppedError(Exception):
    """A run that had to stop, for a reason that every rank knows and a traceback would not tell."""


def needed(module: str, extra: str) -> Any:
    """A module that is asked for by a flag. Raises RefusedError where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise shared_refusal(
            f"{error.name or module} is not installed; type pip install 'spawnlaunch[{extra}]'",
        ) from error


def speaks() -> bool:
    """Whether this worker is the one that talks to the person; known before the workers meet."""
    rank = os.environ.get("RANK", "")
    return not rank.isdecimal() or int(rank) == 0


def tell(text: str) -> None:
    """Write to stderr; where that cannot be written, nothing else fails for it."""
    with contextlib.suppress(Exception):  # as of what a task has put in its place
        sys.stderr.write(text)
        sys.stderr.flush()


def refuse(refusal: RefusedError) -> NoReturn:
    """Exit with status 2 and say why; what all ranks refuse is said once, by rank 0."""
    if speaks() or not refusal.shared:
        who = "" if speaks() else f"rank {os.environ['RANK']}: "
        tell(f"train: error: {who}{refusal}\n")
    elif not refusal.met:
        _let_rank_0_speak()
    sys.exit(2)


def _let_rank_0_speak() -> None:
    """Wait under a launcher, which stops all ranks when the first of them has left.

    Rank 0 may have just begun, and would be stopped before it has said why. When it has left, the
    launcher's SIGTERM ends this wait.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        if hasattr(signal, "sigtimedwait"):  # not on macOS
            signal.sigtimedwait({signal.SIGTERM}, LET_SPEAK_S)

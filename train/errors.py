"""Error messages to the user: one line, from one worker."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import signal
import sys
from typing import Any, NoReturn

LET_SPEAK_S = 10.0
FULL = (errno.ENOSPC, errno.EDQUOT)


class RefusedError(Exception):
    """The run cannot start as asked; the text is one line: what was seen, and the remedy.

    ``shared`` says that every rank raises the same error, so that rank 0 alone may print it;
    ``met`` that the ranks had joined their process group before it.
    """

    def __init__(self, text: str, *, shared: bool = False, met: bool = False) -> None:
        super().__init__(text)
        self.shared = shared
        self.met = met


def shared_refusal(text: str) -> RefusedError:
    """Return a RefusedError that every rank raises, so that rank 0 alone prints it."""
    return RefusedError(text, shared=True)


class ElsewhereError(Exception):
    """Another rank has met an error, and prints its traceback."""


class StoppedError(Exception):
    """The run had to stop, for a reason that every rank knows and that needs no traceback."""


def needed(module: str, extra: str) -> Any:
    """Import a module that a flag needs. Raises RefusedError where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise shared_refusal(
            f"{error.name or module} is not installed; run pip install 'spawnlaunch[{extra}]'"
        ) from error


def advice(error: OSError) -> str:
    """The remedy for an error of writing: to make room, if the disk or the quota is full."""
    return "make room" if error.errno in FULL else "look at the file system"


def prints_messages() -> bool:
    """Whether this worker prints messages: rank 0, or one without RANK; known before they join."""
    rank = os.environ.get("RANK", "")
    return not rank.isdecimal() or int(rank) == 0


def write_stderr(text: str) -> None:
    """Write to stderr, and ignore any error of writing."""
    with contextlib.suppress(Exception):  # a task may have put an object of its own in its place
        sys.stderr.write(text)
        sys.stderr.flush()


def refuse(refusal: RefusedError) -> NoReturn:
    """Print a refusal and exit with status 2; rank 0 alone prints one that all ranks raise."""
    if prints_messages() or not refusal.shared:
        prefix = "" if prints_messages() else f"rank {os.environ['RANK']}: "
        write_stderr(f"train: error: {prefix}{refusal}\n")
    elif not refusal.met:
        wait_for_another()
    sys.exit(2)


def wait_for_another() -> None:
    """Wait for another rank to print, under a launcher, which ends all ranks after the first exit.

    It would be ended before it has printed the error; rank 0 may have just begun. After it has
    exited, the launcher's SIGTERM ends this wait.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        if hasattr(signal, "sigtimedwait"):  # not on macOS
            signal.sigtimedwait({signal.SIGTERM}, LET_SPEAK_S)

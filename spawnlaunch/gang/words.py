"""The lines that a launch on several nodes prints."""

from __future__ import annotations

import re

from spawnlaunch.base import errors
from spawnlaunch.outcome import failures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


STOPS = {
    "join": "has joined: restarting all workers with it",
    "lost": "was lost: ending the workers of all nodes",
}


def of_worker(words: str) -> str:
    r"""Escape the text of another node's worker, so that a terminal takes none of it as commands.

    Lines, tabs and colours (ECMA-48, SGR) stay.

    >>> of_worker("\x1b[31mbad\x1b[0m\n\x1b[2J\x07")
    '\x1b[31mbad\x1b[0m\n\\x1b[2J\\x07'
    """
    pieces = re.findall(r"\x1b\[[\d;:]*m|.", words, re.DOTALL)
    return "".join(p if len(p) > 1 or p in "\n\r\t" else errors.one_line(p) for p in pieces)


def ended(host: str, status: int, cause: failures.Cause | None, has_hub: bool) -> str | None:
    """The one line that a node prints at the end; the hub's node has the whole report."""
    if cause is None or (has_hub and cause.kind == "failure"):
        return None
    return f"{host}: exits with status {status}, as {cause.in_words}"


def differing(who: str, what: Sequence[str]) -> str:
    """The line about flags of a launcher that differ from the hub's."""
    return f"{who} has {failures.names(what)}; the hub's value counts"


def returns(limit_s: float, who: str, line: str = "") -> str:
    """The line about a lost launcher that is waited for, with the command that starts it again."""
    typed = f"; start it there again: {line}" if line else ""
    return f"waiting up to {limit_s:g} s for {who} to come back{typed}"

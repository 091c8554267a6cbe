"""The lines that a launch on several nodes prints."""

from __future__ import annotations

import re
from collections.abc import Sequence

from spawnlaunch.base import errors
from spawnlaunch.outcome import failures
from spawnlaunch.world import identity
from spawnlaunch.world.inherited import is_loopback

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


def differing(node: str, flags: Sequence[str]) -> str:
    """The line about flags of a launcher that differ from the hub's."""
    return f"{node} has {failures.names(flags)}; the hub's value counts"


def waiting(names: str, place: str, left_s: float) -> str:
    """The line about launchers that are missing; `place` is where they meet."""
    return f"waiting for {names} at {place}, up to {left_s:.0f} s"


def place_remark(gathering: identity.Gathering, is_here: bool = False) -> str:
    """The remark about a place that is perhaps another one on other machines; "": there is none.

    `is_here`: its address is this machine's, and the hub was not found there.
    """
    place, named_by = gathering.host, gathering.named_by
    if named_by and is_loopback(place):
        return (
            f"{place} is each machine itself: if nodes are several machines, use the address of "
            f"the first in {named_by}, on all"
        )
    if named_by and is_here:
        return f"{place} is this machine: use the address of the first in {named_by}, on all"
    return ""


def same_place(gathering: identity.Gathering) -> str:
    """The remark that all launchers need the flag or variable that names the place."""
    return f"use the same {gathering.named_by} on all" if gathering.named_by else ""


def return_line(limit_s: float, names: str, line: str = "") -> str:
    """The line about a lost launcher that is waited for, with the command that starts it again."""
    typed = f"; start it there again: {line}" if line else ""
    return f"waiting up to {limit_s:g} s for {names} to come back{typed}"

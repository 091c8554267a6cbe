"""The lines that a launch on several nodes prints."""

from __future__ import annotations

import re

from spawnlaunch.base import errors
from spawnlaunch.outcome import failures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from spawnlaunch.multinode.messages import Report
    from spawnlaunch.multinode.settings import Settings

STOPS = {
    "join": "has joined: restarting all workers with it",
    "lost": "was lost: ending the workers of all nodes",
}
MUST_AGREE = frozenset({"--nnodes", "--spares", "--max-restarts"})
MOST_WORKERS = 2**22  # of a node: pids are below this (PID_MAX_LIMIT, proc(5))


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


def waiting(who: str, place: str, left_s: float) -> str:
    """The line about launchers that are missing; `place` is where they are to meet."""
    return f"waiting for {who} at {place}, up to {left_s:.0f} s"


def _unlike(report: Report, flags: str) -> list[tuple[str, str, str]]:
    """The flags of a launcher that differ from the hub's, with its value and the hub's."""
    if report.flags == flags:
        return []
    ours = dict(flag.split("=", 1) for flag in flags.split())
    pairs = (flag.partition("=") for flag in report.flags.split())
    return [(name, its, ours[name]) for name, _, its in pairs if ours.get(name, its) != its]


def differing(report: Report, flags: str) -> str:
    """The line about a launcher's flags that differ from the hub's, or ""."""
    unlike = [f"{name} {its}, the hub {ours}" for name, its, ours in _unlike(report, flags)]
    who = errors.one_line(report.host)
    return f"{who} has {failures.names(unlike)}; the hub's value counts" if unlike else ""


def refusal(report: Report, same: Sequence[str], settings: Settings) -> str | None:
    """Return why a launcher cannot take part; None: it can.

    `same` are hosts of launchers with its node rank.
    """
    host, total = report.host, settings.total
    if not 1 <= report.nproc <= MOST_WORKERS:
        return f"{host} has {report.nproc} workers; type --nproc N, from 1 to {MOST_WORKERS}"
    if report.rank >= total:
        return (
            f"{host} has node rank {report.rank}, of {total} nodes; type --node-rank N, "
            f"from 0 to {total - 1}, on each"
        )
    for name, its, ours in _unlike(report, settings.flags):
        if name in MUST_AGREE:
            return f"{host} has {name} {its}, the hub {ours}; type the same on all"
    if same:
        both = f"{host} and {same[0]} both have node rank {report.rank}"
        return f"{both}; type another --node-rank on each"
    return None

"""The lines that a launch of several nodes says."""

from __future__ import annotations

from spawnlaunch.gang.messages import Cause

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_NAMES = 8
STOPS = {
    "join": "has joined: restarting all workers with it",
    "lost": "was lost: ending the workers of all nodes",
}


def names(some: Sequence[str]) -> str:
    """
    >>> names(["node1", "node2"])
    'node1, node2'
    >>> names([f"node{n}" for n in range(10)])
    'node0, node1, node2, node3, node4, node5, node6, node7 and 2 more'
    """
    rest = len(some) - MOST_NAMES
    shown = ", ".join(some[:MOST_NAMES])
    return f"{shown} and {rest} more" if rest > 0 else shown


def caused(cause: Cause | None) -> str:
    """Why a launch has ended, or its workers were ended."""
    if cause is None:
        return "all workers have ended well"
    lost = f" ({names(cause.lost)} was lost as well, probably the cause)" if cause.lost else ""
    if cause.kind == "failure":
        return f"rank {cause.rank} on {cause.host} {_how(cause.number)}{cause.oom}{lost}"
    return {
        "hang": "no worker on any node has written anything",
        "lost": f"{cause.host or cause.words or 'a node'} was lost",
        "signal": f"{cause.host} was told to end by signal {cause.number}",
        "timeout": "the time of the launch is over (--timeout)",
        "join": f"{cause.host} has joined",
        "absent": f"still missing: {cause.words}",
        "refused": cause.words,
    }.get(cause.kind, cause.kind)


def _how(code: int) -> str:
    return f"failed with status {code}" if code >= 0 else f"was killed by signal {-code}"


def ended(host: str, status: int, cause: Cause | None, has_hub: bool) -> str | None:
    """The one line that a node says at the end; the hub's node has the whole report."""
    if cause is None or (has_hub and cause.kind == "failure"):
        return None
    return f"{host}: ends with status {status}, as {caused(cause)}"


def of_hub(kind: str, about: Sequence[str]) -> str | None:
    """A line of the hub's node."""
    match kind, *about:
        case ["waiting", *who]:
            return f"waiting for {names(who)}"
        case ["late", *who]:
            return f"the launch has ended: waiting some seconds to tell {names(who)}"
        case ["refused", why]:
            return f"refused: {why}"
        case ["differs", host, *what]:
            return f"{host} has {names(what)}; the hub's value counts"
        case ["stop", "join" | "lost" as what, host]:
            return f"{host} {STOPS[what]}"
        case ["frozen", host]:
            return f"{host} has not answered for a minute, so it counts as lost"
        case ["start", epoch, nnodes, world_size] if epoch != "1":
            return f"start {epoch}: {nnodes} nodes, {world_size} workers"
        case ["stranger", address, why]:
            return f"a connection from {address} was refused: {why}; said once"
        case ["crowd", address]:
            return f"too many connections that send nothing, the last from {address}; said once"
    return None


def of_member(kind: str, about: Sequence[str]) -> str | None:
    """A line of a node that has not the hub."""
    if kind == "waiting":
        return f"waiting for {names(about)}"
    if kind == "differs":
        return f"this node has {names(about)}; the hub's value counts"
    if kind == "hub lost":
        return "the hub is lost: ending the workers"
    return None

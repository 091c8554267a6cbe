"""Who is in the gang, who of them works in the next epoch, and as which node rank. Pure."""

from __future__ import annotations

import re

from spawnlaunch.gang import messages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

IDLE, BUSY, DONE = "idle", "busy", "done"

DIGITS = "0123456789"
MOST_WORKERS = 2**22  # of a node: its processes have numbers below (PID_MAX_LIMIT, proc(5))

MUST_AGREE = frozenset({"--nnodes", "--spares", "--max-restarts"})


class Node:
    """A launcher that has said hello."""

    def __init__(
        self, hello: messages.Hello, addr: str, local: bool, heard: float, came: int
    ) -> None:
        self.hello = hello
        self.addr = addr  # of this node for others
        self.local = local  # it is the hub's own
        self.heard = heard  # when it was heard last
        self.came = came  # a number that grows: the order of arrival
        self.unsure = 0.0  # until then it may be lost, as what was sent to it in a cut is not there
        self.leaving = 0  # the signal that told it to end
        self.begin(-1)

    def begin(self, rank: int) -> None:
        """An epoch begins, in which it has this node rank; -1: it is a spare, or has just come."""
        self.rank, self.state = rank, BUSY if rank >= 0 else IDLE
        self.silent = self.stacked = False


def natural(host: str) -> tuple[tuple[int, int, str], ...]:
    """A key that has node2 before node10. No number is made of digits: they may be thousands.

    >>> sorted(["node10", "node2", "b", "10"], key=natural)
    ['10', 'b', 'node2', 'node10']
    """
    parts = re.findall(r"[0-9]+|[^0-9]+", host)
    return tuple(_digits(p.lstrip("0")) if p[0] in DIGITS else (1, 0, p) for p in parts)


def _digits(number: str) -> tuple[int, int, str]:
    return 0, len(number), number


def _key(node: Node) -> tuple[object, ...]:
    """The order of nodes that have no node rank yet: as they were given, else by host name."""
    given = node.hello.rank if node.hello.rank >= 0 else 2**53
    return given, natural(node.hello.host), node.came


def ready(nodes: Mapping[int, Node]) -> dict[int, Node]:
    """Those that could work in the next epoch, by connection."""
    return {c: node for c, node in nodes.items() if node.state == IDLE and not node.leaving}


def chosen(nodes: Mapping[int, Node], most: int) -> list[int]:
    """The connections of those that work in the next epoch; the place is the node rank.

    Who has worked keeps its node rank, and who comes back has the one that it was given; others
    take the holes.
    """
    here = ready(nodes)
    order = sorted(here, key=lambda c: (here[c].rank < 0, here[c].rank, _key(here[c])))[:most]
    place: dict[int, int] = {}
    for conn in order:
        if 0 <= here[conn].rank < len(order):
            place.setdefault(here[conn].rank, conn)
    for conn in order if place else ():  # not at the first start: then there may be holes in these
        if here[conn].rank < 0 and 0 <= here[conn].hello.rank < len(order):
            place.setdefault(here[conn].hello.rank, conn)
    kept = set(place.values())
    holes = (n for n in range(len(order)) if n not in place)
    rest = sorted((c for c in order if c not in kept), key=lambda c: _key(here[c]))
    place.update(zip(holes, rest, strict=True))
    return [place[n] for n in range(len(order))]


def place(nodes: Mapping[int, Node], launch: str) -> tuple[int, str]:
    """Where files are kept, and the name of the launch: as it was, else as is new on all nodes."""
    hellos = [node.hello for node in nodes.values()]
    told = next(((hello.place, hello.launch) for hello in hellos if hello.launch), None)
    return told or (max(hello.place for hello in hellos), launch)


def first_ranks(nodes: Mapping[int, Node], order: Iterable[int]) -> list[int]:
    """The first rank of each of these nodes, and at last the world size."""
    firsts = [0]
    for conn in order:
        firsts.append(firsts[-1] + nodes[conn].hello.nproc)
    return firsts


def roles(nodes: Mapping[int, Node], order: Iterable[int]) -> dict[int, tuple[int, int]]:
    """By connection, the first rank within the workers' role, and how many have that role."""
    sizes: dict[str, int] = {}
    firsts: dict[int, int] = {}
    for conn in order:
        hello = nodes[conn].hello
        firsts[conn] = sizes.get(hello.role, 0)
        sizes[hello.role] = firsts[conn] + hello.nproc
    return {conn: (first, sizes[nodes[conn].hello.role]) for conn, first in firsts.items()}


def is_awaited(
    hello: messages.Hello, nodes: Mapping[int, Node], expected: tuple[str, ...], total: int
) -> bool:
    """Whether a launcher's place is free: its host's, where all are known, or its node rank."""
    here = [node.hello for node in nodes.values()]
    if expected and (hello.host not in expected or any(o.host == hello.host for o in here)):
        return False
    if 0 <= hello.rank < total and any(other.rank == hello.rank for other in here):
        return False
    return len(here) < total


def is_same(one: messages.Hello, other: messages.Hello) -> bool:
    """Whether these are of one launcher, or of two with the same place."""
    return one.who == other.who or one.rank == other.rank >= 0


def refusal(
    hello: messages.Hello, others: Iterable[Node], total: int, told: Mapping[str, str]
) -> str | None:
    """Why a launcher cannot be part of the gang; None: it can."""
    if hello.version != messages.VERSION:
        return (
            f"{hello.host} speaks version {hello.version} of the launchers' protocol, the hub "
            f"{messages.VERSION}; install the same spawnlaunch on all nodes"
        )
    if not 1 <= hello.nproc <= MOST_WORKERS:
        return f"{hello.host} has {hello.nproc} workers; type --nproc N, from 1 to {MOST_WORKERS}"
    if hello.rank >= total:
        return (
            f"{hello.host} has node rank {hello.rank}, of {total} nodes; type --node-rank N, "
            f"from 0 to {total - 1}, on each"
        )
    for flag, value in hello.told:
        if flag in MUST_AGREE and told.get(flag, value) != value:
            return f"{hello.host} has {flag} {value}, the hub {told[flag]}; type the same on all"
    for node in others:
        if hello.rank >= 0 and node.hello.rank == hello.rank and node.hello.who != hello.who:
            return (
                f"{hello.host} and {node.hello.host} both have node rank {hello.rank}; type "
                "another --node-rank on each"
            )
    return None


def differences(hello: messages.Hello, told: Mapping[str, str]) -> tuple[str, ...]:
    """What a launcher was told otherwise than the hub, whose word counts."""
    return tuple(
        f"{flag} {value}, the hub {told[flag]}"
        for flag, value in hello.told
        if flag in told and told[flag] != value
    )


def not_back(nodes: Mapping[int, Node], holes: Iterable[Node]) -> list[Node]:
    """Launchers that are gone, and for whom nobody else has come."""
    left = list(holes)
    for node in nodes.values():
        if node.rank < 0 and not node.leaving and left:
            one = node.hello
            others = [(h.hello.rank != one.rank, h.hello.host != one.host) for h in left]
            del left[others.index(min(others))]
    return left


def absent(nodes: Mapping[int, Node], expected: tuple[str, ...], total: int) -> tuple[str, ...]:
    """Who is missing: by name where the hosts are known, by node rank where those are given."""
    here = {node.hello.host for node in nodes.values() if not node.leaving}
    if expected:
        return tuple(host for host in expected if host not in here)
    ranks = {node.hello.rank for node in nodes.values() if not node.leaving}
    if ranks and -1 not in ranks:
        return tuple(f"node rank {n}" for n in range(total) if n not in ranks)
    count = sum(not node.leaving for node in nodes.values())
    return (f"{total - count} of {total} nodes",) if count < total else ()

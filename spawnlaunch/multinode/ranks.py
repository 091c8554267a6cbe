"""The launchers that the hub knows, their ranks in an epoch, and which are missing. Pure."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from spawnlaunch.multinode.messages import Order, Report

DIGITS = "0123456789"


class Peer:
    """A launcher that has sent a Report, and its part in the last epoch."""

    def __init__(self, conn: int, report: Report, addr: str, is_local: bool, now: float) -> None:
        self.conn, self.report = conn, report
        self.addr = report.addr or addr  # its node's address for others
        self.is_local = is_local  # it is the hub's own launcher
        self.heard_at, self.unsure_until = now, 0.0
        self.epoch, self.node_rank = 0, -1  # the last epoch in which it works, and its rank there
        self.start: Order | None = None  # of that epoch
        self.order: Order | None = None  # the last one that was sent


def natural(host: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that puts node2 before node10.

    It compares the digits as text and makes no int of them: a name may have hundreds of digits.

    >>> sorted(["node10", "node2", "b", "10"], key=natural)
    ['10', 'b', 'node2', 'node10']
    """
    parts = re.findall(r"[0-9]+|[^0-9]+", host)
    return tuple(_digits(p.lstrip("0")) if p[0] in DIGITS else (1, 0, p) for p in parts)


def _digits(number: str) -> tuple[int, int, str]:
    return 0, len(number), number


def _key(peer: Peer) -> tuple[object, ...]:
    """The sort key of a node without a node rank: its given rank, else its host name."""
    given = peer.report.rank if peer.report.rank >= 0 else 2**53
    return given, natural(peer.report.host), peer.conn


def choose_nodes(ready: Sequence[Peer], most: int) -> list[Peer]:
    """Choose the nodes of the next epoch, in the order of their node ranks.

    A node of the last epoch keeps its node rank, and one that comes back gets the rank that its
    user gave; the others fill the holes.
    """
    order = sorted(ready, key=lambda p: (p.node_rank < 0, p.node_rank, _key(p)))[:most]
    place: dict[int, Peer] = {}
    for peer in order:
        if 0 <= peer.node_rank < len(order):
            place.setdefault(peer.node_rank, peer)
    for peer in order if place else ():  # at the first start the given ranks may have holes
        if peer.node_rank < 0 and 0 <= peer.report.rank < len(order):
            place.setdefault(peer.report.rank, peer)
    kept = {peer.conn for peer in place.values()}
    holes = (n for n in range(len(order)) if n not in place)
    rest = sorted((peer for peer in order if peer.conn not in kept), key=_key)
    place.update(zip(holes, rest, strict=True))
    return [place[n] for n in range(len(order))]


def count_ranks(nodes: Sequence[Peer]) -> tuple[list[int], list[int], dict[str, int]]:
    """Return each node's first rank and its first rank within its role, and the roles' sizes.

    The last item of the first list is the world size.
    """
    firsts, of_role, sizes = [0], list[int](), dict[str, int]()
    for peer in nodes:
        role, nproc = peer.report.role, peer.report.nproc
        of_role.append(sizes.get(role, 0))
        firsts.append(firsts[-1] + nproc)
        sizes[role] = of_role[-1] + nproc
    return firsts, of_role, sizes


def find_lost(peers: Collection[Peer], lost: Sequence[Peer]) -> list[Peer]:
    """The lost nodes that no newcomer replaces: one of that node rank or host, or any other."""
    newcomers = [peer.report for peer in peers if peer.node_rank < 0 and not peer.report.leaving]
    given = {report.rank for report in newcomers if report.rank >= 0}
    hosts = {report.host for report in newcomers}
    left = [p for p in lost if p.report.rank not in given and p.report.host not in hosts]
    others = len(newcomers) - (len(lost) - len(left))
    return sorted(left, key=lambda peer: peer.node_rank)[max(0, others) :]


def name_absent(peers: Collection[Peer], expected: Sequence[str], total: int) -> tuple[str, ...]:
    """The launchers that have never come: by host where all are known, else by given node rank."""
    here = [peer.report for peer in peers if not peer.report.leaving]
    if expected:
        hosts = {report.host for report in here}
        return tuple(host for host in expected if host not in hosts)
    given = {report.rank for report in here}
    if given and -1 not in given:
        return tuple(f"node rank {n}" for n in range(total) if n not in given)
    return (f"{total - len(here)} of {total} nodes",) if len(here) < total else ()

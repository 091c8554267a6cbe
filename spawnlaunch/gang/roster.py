"""Who is in the gang, who of them works in the next epoch, and as which node rank. Pure.

`Nodes` answers from an index what each event asks. What looks at all launchers is for what all are
told of: an epoch's beginning, and who is missing.
"""

from __future__ import annotations

import re

from spawnlaunch.gang import deadlines, messages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

IDLE, BUSY, DONE = "idle", "busy", "done"
# Other groups of launchers: who could work in the next epoch, who was told to end, who had a node
# rank in the last; those of the busy who are silent, and who have shown their stacks; the hub's.
READY, LEAVING, RANKED, SILENT, STACKED, LOCAL = (
    *("ready", "leaving", "ranked", "silent", "stacked", "local"),
)

DIGITS = "0123456789"
MOST_WORKERS = 2**22  # of a node: its processes have numbers below (PID_MAX_LIMIT, proc(5))

MUST_AGREE = frozenset({"--nnodes", "--spares", "--max-restarts"})


class Peer:
    """A launcher that has said hello."""

    def __init__(
        self, hello: messages.Hello, addr: str, local: bool, heard: float, came: int
    ) -> None:
        self.hello = hello
        self.addr = addr  # of this node for others
        self.local = local  # it is the hub's own
        self.heard = heard  # when it was heard last
        self.came = came  # a number that grows: the order of arrival
        self.leaving = 0  # the signal that told it to end
        self.rank, self.state = -1, IDLE  # -1: it is a spare, or has just come
        self.silent = self.stacked = False

    def groups(self) -> Iterator[object]:
        """Those that it is in. Of the keys of its hello none changes."""
        hello, is_busy = self.hello, self.state == BUSY
        yield from (("who", hello.who), ("host", hello.host), ("given", hello.rank), self.state)
        members = (
            (READY, self.state == IDLE and not self.leaving),
            (LEAVING, self.leaving),
            (RANKED, self.rank >= 0),
            (SILENT, is_busy and self.silent),
            (STACKED, is_busy and self.stacked),
            (LOCAL, self.local),
        )
        yield from (group for group, is_in in members if is_in)


class Nodes(dict[int, Peer]):
    """The launchers that have said hello, by connection. Its methods change it, and nothing else.

    A launcher counts as lost that was not heard for `dead_s`.
    """

    def __init__(self, dead_s: float) -> None:
        super().__init__()
        self._groups: dict[object, dict[int, Peer]] = {}
        self._dead_s = dead_s
        self.dead = deadlines.Deadlines()
        self.unsure = deadlines.Deadlines()  # may be lost: what was sent into a cut is not there

    def of(self, group: object) -> Mapping[int, Peer]:
        """Those of a group."""
        return self._groups.get(group, {})

    def add(self, conn: int, node: Peer) -> None:
        self[conn] = node
        self._enter(conn, node)
        self.hear(conn, node.heard)

    def remove(self, conn: int) -> Peer:
        node = self.pop(conn)
        self._leave(conn, node)
        self.dead.drop(conn)
        self.unsure.drop(conn)
        return node

    def hear(self, conn: int, now: float) -> None:
        """It has said something."""
        self[conn].heard = now
        self.dead.set(conn, now + self._dead_s)

    def change(self, conn: int, **fields: object) -> None:
        node = self[conn]
        self._leave(conn, node)
        for name, value in fields.items():
            setattr(node, name, value)
        self._enter(conn, node)

    def begin(self, conn: int, rank: int) -> None:
        """An epoch begins, in which it has this node rank; -1: it is a spare."""
        state = BUSY if rank >= 0 else IDLE
        self.change(conn, rank=rank, state=state, silent=False, stacked=False)

    def _enter(self, conn: int, node: Peer) -> None:
        for group in node.groups():
            self._groups.setdefault(group, {})[conn] = node

    def _leave(self, conn: int, node: Peer) -> None:
        for group in node.groups():
            del self._groups[group][conn]
            if not self._groups[group]:  # else its first is sought among all that have been there
                del self._groups[group]


def natural(host: str) -> tuple[tuple[int, int, str], ...]:
    """A key that has node2 before node10. No number is made of digits: they may be thousands.

    >>> sorted(["node10", "node2", "b", "10"], key=natural)
    ['10', 'b', 'node2', 'node10']
    """
    parts = re.findall(r"[0-9]+|[^0-9]+", host)
    return tuple(_digits(p.lstrip("0")) if p[0] in DIGITS else (1, 0, p) for p in parts)


def _digits(number: str) -> tuple[int, int, str]:
    return 0, len(number), number


def _key(node: Peer) -> tuple[object, ...]:
    """The order of nodes that have no node rank yet: as they were given, else by host name."""
    given = node.hello.rank if node.hello.rank >= 0 else 2**53
    return given, natural(node.hello.host), node.came


def chosen(here: Mapping[int, Peer], most: int) -> list[int]:
    """The connections of those that work in the next epoch, of all that could: in order of rank.

    Who has worked keeps its node rank, and who comes back has the one that it was given; others
    take the holes.
    """
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


def launch_name(nodes: Mapping[int, Peer], new: str) -> str:
    """The name of the launch: as it was, where a node has been in it."""
    hellos = [node.hello for node in nodes.values()]
    return next((hello.launch for hello in hellos if hello.launch), new)


def first_ranks(nodes: Mapping[int, Peer], order: Iterable[int]) -> list[int]:
    """The first rank of each of these nodes, and at last the world size."""
    firsts = [0]
    for conn in order:
        firsts.append(firsts[-1] + nodes[conn].hello.nproc)
    return firsts


def roles(nodes: Mapping[int, Peer], order: Iterable[int]) -> dict[int, tuple[int, int]]:
    """By connection, the first rank within the workers' role, and how many have that role."""
    sizes: dict[str, int] = {}
    firsts: dict[int, int] = {}
    for conn in order:
        hello = nodes[conn].hello
        firsts[conn] = sizes.get(hello.role, 0)
        sizes[hello.role] = firsts[conn] + hello.nproc
    return {conn: (first, sizes[nodes[conn].hello.role]) for conn, first in firsts.items()}


def is_awaited(hello: messages.Hello, nodes: Nodes, expected: frozenset[str], total: int) -> bool:
    """Whether a launcher's place is free: its host's, where all are known, or its node rank."""
    if expected and (hello.host not in expected or nodes.of(("host", hello.host))):
        return False
    if 0 <= hello.rank < total and nodes.of(("given", hello.rank)):
        return False
    return len(nodes) < total


def refusal(
    hello: messages.Hello, others: Iterable[Peer], total: int, told: Mapping[str, str]
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


def not_back(nodes: Mapping[int, Peer], holes: Iterable[Peer]) -> list[Peer]:
    """Launchers that are gone, and for whom nobody else has come.

    A newcomer stands for one of its node rank, if it can, and of its host; else for the first.
    """
    left = dict(enumerate(holes))
    alike: dict[object, list[int]] = {}
    for n in reversed(left):
        for key in _likeness(left[n].hello):
            alike.setdefault(key, []).append(n)
    for node in nodes.values():
        if node.rank < 0 and not node.leaving:
            left.pop(_one_like(node.hello, alike, left), None)
    return list(left.values())


def _one_like(
    hello: messages.Hello, alike: Mapping[object, list[int]], left: Mapping[int, Peer]
) -> int:
    """For whom of those who are left a newcomer stands; -1: nobody is."""
    for key in _likeness(hello):
        those = alike.get(key, [])
        while those and those[-1] not in left:
            those.pop()
        if those:
            return those[-1]
    return -1


def _likeness(hello: messages.Hello) -> tuple[object, ...]:
    """Who may stand for whom, rather by the first of these."""
    return (hello.rank, hello.host), hello.rank, hello.host, None


def absent(nodes: Mapping[int, Peer], expected: tuple[str, ...], total: int) -> tuple[str, ...]:
    """Who is missing: by name where the hosts are known, by node rank where those are given."""
    here = [node.hello for node in nodes.values() if not node.leaving]
    if expected:
        hosts = {hello.host for hello in here}
        return tuple(host for host in expected if host not in hosts)
    ranks = {hello.rank for hello in here}
    if ranks and -1 not in ranks:
        return tuple(f"node rank {n}" for n in range(total) if n not in ranks)
    return (f"{total - len(here)} of {total} nodes",) if len(here) < total else ()

"""The members, and the choice of node ranks for the next epoch. Pure.

`Nodes` has an index, from which each event gets its answers. Only two functions go through all
launchers: for the beginning of an epoch, and to name the missing ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from spawnlaunch.multinode import deadlines, messages

IDLE, BUSY, DONE = "idle", "busy", "done"
# Further groups of launchers. READY: could work in the next epoch; LEAVING: got a signal to end;
# RANKED: had a node rank in the last epoch; SILENT and STACKED: have workers that are silent, or
# that have shown their stacks; LOCAL: the hub's own launcher.
READY, LEAVING, RANKED, SILENT, STACKED, LOCAL = (
    *("ready", "leaving", "ranked", "silent", "stacked", "local"),
)

DIGITS = "0123456789"
MOST_WORKERS = 2**22  # of a node: pids are below this (PID_MAX_LIMIT, proc(5))

MUST_AGREE = frozenset({"--nnodes", "--spares", "--max-restarts"})


class Peer:
    """A launcher that has sent its Hello."""

    def __init__(
        self, hello: messages.Hello, addr: str, is_local: bool, now: float, arrival: int
    ) -> None:
        self.hello = hello
        self.addr = addr  # its node's address for others
        self.is_local = is_local  # it is the hub's own launcher
        self.last_message_at = now
        self.arrival = arrival  # its number in the order of arrival
        self.end_signal = 0  # the signal to end that it got
        self.node_rank, self.state = -1, IDLE  # -1: it is a spare, or has just connected
        self.is_silent = self.has_shown_stacks = False

    def groups(self) -> Iterator[object]:
        """Yield the groups that this launcher is in; the keys of its Hello never change."""
        hello, is_busy = self.hello, self.state == BUSY
        yield from (("launcher", hello.launcher_id), ("host", hello.host))
        yield from (("given", hello.given_node_rank), self.state)
        members = (
            (READY, self.state == IDLE and not self.end_signal),
            (LEAVING, self.end_signal),
            (RANKED, self.node_rank >= 0),
            (SILENT, is_busy and self.is_silent),
            (STACKED, is_busy and self.has_shown_stacks),
            (LOCAL, self.is_local),
        )
        yield from (group for group, is_in in members if is_in)


class Nodes(dict[int, Peer]):
    """The launchers that have sent a Hello, by connection. Only its methods change it.

    A launcher counts as lost if no message of it comes for `dead_s`.
    """

    def __init__(self, dead_s: float) -> None:
        super().__init__()
        self._groups: dict[object, dict[int, Peer]] = {}
        self._dead_s = dead_s
        self.dead = deadlines.Deadlines()
        self.unsure = deadlines.Deadlines()  # members after a cut, which may have lost messages

    def of(self, group: object) -> Mapping[int, Peer]:
        """The launchers of a group, by connection."""
        return self._groups.get(group, {})

    def add(self, conn: int, node: Peer) -> None:
        self[conn] = node
        self._enter(conn, node)
        self.note_message(conn, node.last_message_at)

    def remove(self, conn: int) -> Peer:
        node = self.pop(conn)
        self._leave(conn, node)
        self.dead.drop(conn)
        self.unsure.drop(conn)
        return node

    def note_message(self, conn: int, now: float) -> None:
        """Note the time of a launcher's message."""
        self[conn].last_message_at = now
        self.dead.set(conn, now + self._dead_s)

    def change(self, conn: int, **fields: object) -> None:
        node = self[conn]
        self._leave(conn, node)
        for name, value in fields.items():
            setattr(node, name, value)
        self._enter(conn, node)

    def begin(self, conn: int, node_rank: int) -> None:
        """Set the node rank of a launcher for the epoch that begins; -1: it is a spare."""
        state = BUSY if node_rank >= 0 else IDLE
        self.change(conn, node_rank=node_rank, state=state, is_silent=False, has_shown_stacks=False)

    def _enter(self, conn: int, node: Peer) -> None:
        for group in node.groups():
            self._groups.setdefault(group, {})[conn] = node

    def _leave(self, conn: int, node: Peer) -> None:
        for group in node.groups():
            del self._groups[group][conn]
            # An emptied dict keeps its size, so that finding its first key would take that long.
            if not self._groups[group]:
                del self._groups[group]


def natural(host: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that puts node2 before node10.

    It compares the digits as text and makes no int of them: a name may have thousands of digits.

    >>> sorted(["node10", "node2", "b", "10"], key=natural)
    ['10', 'b', 'node2', 'node10']
    """
    parts = re.findall(r"[0-9]+|[^0-9]+", host)
    return tuple(
        (0, len(number := part.lstrip("0")), number) if part[0] in DIGITS else (1, 0, part)
        for part in parts
    )


def _key(node: Peer) -> tuple[object, ...]:
    """Return the sort key of a node without a node rank: its given rank, else its host name."""
    rank = node.hello.given_node_rank if node.hello.given_node_rank >= 0 else 2**53
    return rank, natural(node.hello.host), node.arrival


def chosen(here: Mapping[int, Peer], most: int) -> list[int]:
    """Choose the connections of the nodes for the next epoch, in order of node rank.

    A node of the last epoch keeps its node rank, and one that comes back gets the rank that its
    user gave; the others get the free ones.
    """
    by_rank = sorted(here, key=lambda c: (here[c].node_rank < 0, here[c].node_rank, _key(here[c])))
    order = by_rank[:most]
    place: dict[int, int] = {}
    for conn in order:
        if 0 <= here[conn].node_rank < len(order):
            place.setdefault(here[conn].node_rank, conn)
    for conn in order if place else ():  # at the first start the given ranks may have holes
        if here[conn].node_rank < 0 and 0 <= here[conn].hello.given_node_rank < len(order):
            place.setdefault(here[conn].hello.given_node_rank, conn)
    placed = set(place.values())
    free_node_ranks = (n for n in range(len(order)) if n not in place)
    rest = sorted((c for c in order if c not in placed), key=lambda c: _key(here[c]))
    place.update(zip(free_node_ranks, rest, strict=True))
    return [place[n] for n in range(len(order))]


def launch_name(nodes: Mapping[int, Peer], new: str) -> str:
    """The name of the launch: the old one where a node has been part of it, else `new`."""
    hellos = [node.hello for node in nodes.values()]
    return next((hello.launch_name for hello in hellos if hello.launch_name), new)


def first_ranks(nodes: Mapping[int, Peer], order: Iterable[int]) -> list[int]:
    """The first rank of each of these nodes, and as the last item the world size."""
    firsts = [0]
    for conn in order:
        firsts.append(firsts[-1] + nodes[conn].hello.nproc)
    return firsts


def roles(nodes: Mapping[int, Peer], order: Iterable[int]) -> dict[int, tuple[int, int]]:
    """By connection, the first rank within the workers' role, and the size of that role."""
    sizes: dict[str, int] = {}
    firsts: dict[int, int] = {}
    for conn in order:
        hello = nodes[conn].hello
        firsts[conn] = sizes.get(hello.role, 0)
        sizes[hello.role] = firsts[conn] + hello.nproc
    return {conn: (first, sizes[nodes[conn].hello.role]) for conn, first in firsts.items()}


def is_awaited(hello: messages.Hello, nodes: Nodes, expected: frozenset[str], most: int) -> bool:
    """Whether a launcher of this host, where all are known, or of this node rank is missing."""
    if expected and (hello.host not in expected or nodes.of(("host", hello.host))):
        return False
    if 0 <= hello.given_node_rank < most and nodes.of(("given", hello.given_node_rank)):
        return False
    return len(nodes) < most


def refusal(
    hello: messages.Hello, others: Iterable[Peer], most: int, flags: Mapping[str, str]
) -> str | None:
    """Return why a launcher cannot take part; None: it can. `others` have its node rank."""
    if not 1 <= hello.nproc <= MOST_WORKERS:
        return f"{hello.host} has {hello.nproc} workers; use --nproc N, from 1 to {MOST_WORKERS}"
    if hello.given_node_rank >= most:
        return (
            f"{hello.host} has node rank {hello.given_node_rank}, of {most} nodes; "
            f"use --node-rank N, from 0 to {most - 1}, on each"
        )
    for flag, value in hello.flags:
        if flag in MUST_AGREE and flags.get(flag, value) != value:
            return f"{hello.host} has {flag} {value}, the hub {flags[flag]}; use the same on all"
    for node in others:
        if node.hello.launcher_id != hello.launcher_id:
            return (
                f"{hello.host} and {node.hello.host} both have node rank "
                f"{hello.given_node_rank}; use another --node-rank on each"
            )
    return None


def differences(hello: messages.Hello, flags: Mapping[str, str]) -> tuple[str, ...]:
    """The flags of a launcher that differ from the hub's; the hub's values count."""
    return tuple(
        f"{flag} {value}, the hub {flags[flag]}"
        for flag, value in hello.flags
        if flag in flags and flags[flag] != value
    )


def not_back(nodes: Mapping[int, Peer], lost_peers: Iterable[Peer]) -> list[Peer]:
    """The lost launchers that no newcomer replaces.

    A newcomer replaces a lost launcher of its node rank and host, or of one of the two; else the
    first one.
    """
    remaining = dict(enumerate(lost_peers))
    alike: dict[object, list[int]] = {}
    for n in reversed(remaining):
        for key in _likeness(remaining[n].hello):
            alike.setdefault(key, []).append(n)
    for node in nodes.values():
        if node.node_rank < 0 and not node.end_signal:
            remaining.pop(_replaced(node.hello, alike, remaining), None)
    return list(remaining.values())


def _replaced(
    hello: messages.Hello, alike: Mapping[object, list[int]], remaining: Mapping[int, Peer]
) -> int:
    """Return the number of the lost launcher that a newcomer replaces; -1: none."""
    for key in _likeness(hello):
        those = alike.get(key, [])
        while those and those[-1] not in remaining:
            those.pop()
        if those:
            return those[-1]
    return -1


def _likeness(hello: messages.Hello) -> tuple[object, ...]:
    """The keys by which a newcomer matches a lost launcher, the best match first."""
    return (hello.given_node_rank, hello.host), hello.given_node_rank, hello.host, None


def not_yet_connected(
    nodes: Mapping[int, Peer], expected: tuple[str, ...], most: int
) -> tuple[str, ...]:
    """The missing launchers: by host name where all are known, else by given node rank."""
    here = [node.hello for node in nodes.values() if not node.end_signal]
    if expected:
        hosts = {hello.host for hello in here}
        return tuple(host for host in expected if host not in hosts)
    ranks = {hello.given_node_rank for hello in here}
    if ranks and -1 not in ranks:
        return tuple(f"node rank {n}" for n in range(most) if n not in ranks)
    return (f"{most - len(here)} of {most} nodes",) if len(here) < most else ()

"""How the launchers of several nodes meet, as a record."""

from __future__ import annotations

from spawnlaunch.base import records


class Gathering(records.NamedTuple):
    """How the launchers of several nodes meet, to be told their ranks by one of them."""

    host: str  # where they meet
    port: int
    ports: int  # how many from there on may be it: a computed one may be taken
    is_hub: bool | None  # at this launcher; None: at the first of those here that listens
    node_rank: int  # as it was given; -1: by the order of the nodes' names
    least: int  # nodes that are enough
    most: int
    spares: int
    expected: tuple[str, ...]  # names of nodes, where all are known
    returns: bool  # whatever has made their pods starts lost launchers again; else only a user does
    return_s: float | None  # how long a lost launcher is waited for; 0: not; None: join_timeout
    again: bool  # this launcher itself is started again if it fails
    name: str  # of this node
    master_addr: str  # where the user has named one
    master_port: int  # likewise; 0: a free one

    @property
    def is_elastic(self) -> bool:
        """Whether the number of nodes may change."""
        return self.least < self.most

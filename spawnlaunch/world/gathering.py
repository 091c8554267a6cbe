"""How the launchers of several nodes meet, as a record."""

from __future__ import annotations

from spawnlaunch.base import records


class Gathering(records.NamedTuple):
    """How the launchers of several nodes meet; the hub then assigns their ranks."""

    host: str  # where they meet
    port: int
    ports: int  # number of ports to try, from `port` on: a computed port may be in use
    is_hub: bool | None  # this launcher is the hub; None: the first on this machine that listens
    node_rank: int  # as it was given; -1: by the order of the nodes' names
    least: int  # number of nodes that is enough to begin
    most: int
    spares: int
    expected: tuple[str, ...]  # names of nodes, where all are known
    can_return: bool  # somebody may start a lost launcher again
    is_restarted: bool  # a manager does, if this launcher fails, as Kubernetes restarts pods
    name: str  # of this node
    master_addr: str  # where the user has named one
    master_port: int  # where the user has named one; 0: a free port

    @property
    def is_elastic(self) -> bool:
        """Whether the number of nodes may change."""
        return self.least < self.most

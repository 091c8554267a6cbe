"""What the user wants of a gang; the hub's settings are everybody's."""

from __future__ import annotations

from spawnlaunch.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Settings(NamedTuple):
    """How many nodes, how often again, and how long for what. Times are in seconds."""

    least: int  # nodes that an epoch needs
    most: int  # nodes that work at once
    spares: int = 0  # nodes that wait beside them
    max_restarts: int = 0
    window_s: float = 0.0  # of health, after which nothing of the budget is used; 0: never
    final: frozenset[int] = frozenset()  # exit statuses of a failure that end the launch
    returns: bool = False  # lost launchers may come back: wait for them, and for the hub
    expected: tuple[str, ...] = ()  # host names, where all are known
    master_addr: str = ""  # where the user has named one
    master_port: int = 0
    join_s: float = 600.0
    last_call_s: float = 30.0  # for others, where enough have come to the first epoch
    lost_after_s: float = 10.0
    grace_s: float = 30.0
    failure_grace_s: float = 10.0
    timeout_s: float = 0.0  # of the whole launch; 0: none
    beat_s: float = 5.0
    dead_s: float = 60.0  # a connection on which nothing was heard for so long
    ends_hung: bool = False  # --on-hang kill
    launch: str = ""  # a name that no other launch has
    told: tuple[tuple[str, str], ...] = ()  # flags and values that all should have alike

    @property
    def total(self) -> int:
        """Launchers that are expected at most."""
        return self.most + self.spares

    @property
    def is_elastic(self) -> bool:
        """Whether the launch may go on without a node."""
        return self.least < self.most or self.spares > 0

    @property
    def longest_grace_s(self) -> float:
        return max(self.grace_s, self.failure_grace_s)

    def for_members(self) -> dict[str, Any]:
        """The fields of a Welcome that every member takes over."""
        return {
            "returns": self.returns,
            "beat_s": self.beat_s,
            "dead_s": self.dead_s,
            "join_s": self.join_s,
            "grace_s": self.grace_s,
            "failure_grace_s": self.failure_grace_s,
        }

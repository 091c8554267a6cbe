"""What optional parts of a launch hear of its workers: `walk` hands them in, and run knows none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from spawnlaunch.outcome import exits, failures
from spawnlaunch.workers import launches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from spawnlaunch.run.processes import Running


class Observer:
    """Hears what happens on this node; each defines the methods for what it is interested in."""

    def began(self, workers: Sequence[launches.Worker], running: Mapping[int, Running], /) -> None:
        """The workers of an attempt were started; `running` has by rank those that could be."""

    def resumed(self) -> None:
        """Workers, or the whole launch, were stopped or continued."""

    def exited(self, one: exits.WorkerExit) -> None:
        """A worker has ended."""

    def failed(self, failure: failures.Failure) -> None:
        """A worker has ended by itself, badly."""

    def told_to_end(self, signum: int) -> None:
        """A signal means to end the launch."""

    def noted(self, kind: str, **values: Any) -> None:
        """The launcher says something about the launch."""

    def stacks_wanted(self, ranks: Iterable[tuple[launches.Worker, int]], heading: str) -> None:
        """Someone asks where these workers are, each with its pid; `heading` is why, or ""."""

    def stacks_told(self, told: Any) -> None:
        """Where the workers are was shown; `told` is that for the other nodes, or None."""

    def compared(self, told: Sequence[Any], world_size: int) -> None:
        """Every node has told where its workers are; this node compares them."""

    def silent(self, is_silent: bool) -> None:
        """All workers here write nothing, or one of them writes again."""

    def ran(self) -> None:
        """All workers of an attempt have ended."""

    def launcher_gone(self) -> None:
        """The launcher above the guard has died."""

    def ended(self, result: exits.LaunchResult, was_told_to_end: Callable[[], bool]) -> None:
        """The launch has ended."""

"""Events of the workers, as optional parts of a launch get them.

`walk` hands the observers in; `run` knows none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from spawnlaunch.outcome import failures
from spawnlaunch.workers import launches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from spawnlaunch.run.processes import Running


class Observer:
    """A receiver of the events on this node; subclasses define the methods that they need."""

    def began(self, workers: Sequence[launches.Worker], running: Mapping[int, Running], /) -> None:
        """The workers of an attempt were started; `running` has by rank those that could be."""

    def resumed(self) -> None:
        """Workers, or the whole launch, were stopped or continued."""

    def exited(self, exited: failures.WorkerExit) -> None:
        """A worker has ended."""

    def failed(self, failure: failures.Failure) -> None:
        """A worker has ended by itself, badly."""

    def end_requested(self, signum: int) -> None:
        """A signal means to end the launch."""

    def noted(self, kind: str, **values: Any) -> None:
        """The launcher says something about the launch."""

    def stacks_wanted(self, ranks: Iterable[tuple[launches.Worker, int]], heading: str) -> None:
        """A signal or a hang asks where these workers are, each with its pid.

        `heading` is the reason, or "".
        """

    def stacks_shown(self, report: Any) -> None:
        """The places of the workers were shown.

        `report` is the record of them for the other nodes, or None.
        """

    def compared(self, reports: Sequence[Any], world_size: int) -> None:
        """Every node has reported where its workers are; this node compares the reports."""

    def silent(self, is_silent: bool) -> None:
        """All workers on this node have become silent, or one of them writes again."""

    def ran(self) -> None:
        """All workers of an attempt have ended."""

    def launcher_died(self) -> None:
        """The launcher above the guard has died."""

    def ended(self, result: failures.LaunchResult, is_end_requested: Callable[[], bool]) -> None:
        """The launch has ended."""


class Coordinator(Observer):
    """An observer that decides when this node's workers start and end, on several nodes."""

    def __init__(self, supervisor: Any) -> None:
        """Meet the other launchers. Raises UsageError where they cannot meet here."""
        raise NotImplementedError

    def run(self) -> failures.LaunchResult:
        """Run the launch to its end; the result has the exit status of all launchers."""
        raise NotImplementedError

    def report(self, result: failures.LaunchResult) -> None:
        """Print how the launch ended."""
        raise NotImplementedError

    def elsewhere(self, result: failures.LaunchResult) -> list[tuple[int, int | None]] | None:
        """The ends of the ranks of other nodes: (rank, code), None where the code is not known.

        None where another node files them.
        """
        raise NotImplementedError

    @staticmethod
    def tell_unable(launch: launches.Launch, status: int, words: str, signum: int = 0) -> None:
        """Tell the other launchers that this one ends before it has had workers."""
        raise NotImplementedError

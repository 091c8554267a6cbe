"""Events of the workers, as optional parts of a launch get them.

`walk` hands the observers in; `run` knows none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from spawnlaunch.outcome import exits, failures
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

    def exited(self, one: exits.WorkerExit) -> None:
        """A worker has ended."""

    def failed(self, failure: failures.Failure) -> None:
        """A worker has ended by itself, badly."""

    def told_to_end(self, signum: int) -> None:
        """A signal means to end the launch."""

    def noted(self, kind: str, **values: Any) -> None:
        """The launcher says something about the launch."""

    def stacks_wanted(self, ranks: Iterable[tuple[launches.Worker, int]], heading: str) -> None:
        """A signal or a hang asks where these workers are, each with its pid.

        `heading` is the reason, or "".
        """

    def ran(self) -> None:
        """All workers of an attempt have ended."""

    def launcher_gone(self) -> None:
        """The launcher above the guard has died."""

    def ended(self, result: exits.LaunchResult, was_told_to_end: Callable[[], bool]) -> None:
        """The launch has ended."""


class Leader(Observer):
    """An observer that decides when workers are started and ended, as on several nodes."""

    def run(self, end_all: Callable[[], bool]) -> exits.LaunchResult:
        """Run the launch to its end.

        `end_all` kills the processes that workers have left; False: some of them stay.
        """
        raise NotImplementedError

    def leave_word(self, result: exits.LaunchResult) -> int:
        """Report how the launch ended; return the exit status."""
        raise NotImplementedError

    def tell_unable(self, status: int, words: str, signum: int = 0) -> None:
        """Tell the other launchers that this one ends before it has had workers."""
        raise NotImplementedError

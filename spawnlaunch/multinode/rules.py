"""The base of hub and member: it takes events one by one, and has their clock.

Each kind of event is a method, marked as an `event`. It changes the state and calls the actions.
The rules use no socket, process or file: their makers pass in the actions and the clock.
"""

from __future__ import annotations

from functools import partial, wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Concatenate, ParamSpec, TypeVar

    P = ParamSpec("P")
    AnyRules = TypeVar("AnyRules", bound="Rules")

STRIDE_S = 10.0  # the most that the clock moves between two events: beyond it, the machine slept
TURN_S = 5.0  # the longest wait for an event
NAMING_S = 10.0  # between two lines about launchers, or a hub, that are waited for
FIRST_NAMING_S = 5.0  # before the first of these


def event(
    rule: Callable[Concatenate[AnyRules, P], None],
) -> Callable[Concatenate[AnyRules, P], None]:
    """Mark a method as an event; events that come while another one is handled wait for it."""

    @wraps(rule)
    def happens(self: AnyRules, /, *args: P.args, **kwargs: P.kwargs) -> None:
        self._take(partial(rule, self, *args, **kwargs))

    return happens


class Rules:
    """The rules of a hub or a member, which take one event after the other.

    Their clock is paused while the machine sleeps: so a launcher that was frozen is not late, and
    does not count others as lost because of that. A clock that goes back does no harm either.
    """

    def __init__(self, clock: Callable[[], float], wake: Callable[[float | None], None]) -> None:
        """Set up the rules; `wake(seconds)` calls `tick` after that time, `wake(None)` never."""
        self._clock, self.wake = clock, wake
        self.time = clock()  # the clock at the last event
        self.slept = 0.0
        self.now = self.time  # the time of the event, by the clock without sleep
        self._waiting: list[Callable[[], None]] = []

    def _look_at_clock(self) -> float:
        before, self.time = self.time, self._clock()
        passed = self.time - before
        self.slept += max(0.0, passed - STRIDE_S) + min(0.0, passed)
        return self.time - self.slept

    @event
    def tick(self) -> None:
        """Handle the passing of time."""

    def _take(self, rule: Callable[[], None]) -> None:
        self._waiting.append(rule)
        if len(self._waiting) > 1:
            return
        try:
            while self._waiting:
                self.now = self._look_at_clock()
                self._follow(self._waiting[0])
                del self._waiting[0]
        finally:
            self._waiting.clear()
        now = self._look_at_clock()
        later = [time - now for time in self._times() if time > self.now]
        self.wake(None if self.is_over else max(0.01, min([TURN_S, *later])))

    def _follow(self, rule: Callable[[], None]) -> None:
        """Apply a rule, then the decisions that follow from it and from the time."""
        raise NotImplementedError

    @property
    def is_over(self) -> bool:
        """Whether no event has an effect any more."""
        raise NotImplementedError

    def _times(self) -> Iterable[float]:
        """The times at which a decision may be due without any event."""
        raise NotImplementedError

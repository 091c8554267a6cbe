"""What the rules of hub and member have in common: how they take events, and their clock.

What happens is a method, marked as an `event`. It changes what is known, and calls what is to be
done. No socket, process or file is looked at: all that is done and the time are given.
"""

from __future__ import annotations

from functools import partial, wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Concatenate, ParamSpec, TypeVar

    P = ParamSpec("P")
    AnyRules = TypeVar("AnyRules", bound="Rules")

STRIDE_S = 10.0  # the longest time that passes between two events; what is more, the machine slept
TURN_S = 5.0


def event(
    rule: Callable[Concatenate[AnyRules, P], None],
) -> Callable[Concatenate[AnyRules, P], None]:
    """A method that is called with what happened. While a rule acts, other events wait for it."""

    @wraps(rule)
    def happens(self: AnyRules, /, *args: P.args, **kwargs: P.kwargs) -> None:
        self._take(partial(rule, self, *args, **kwargs))

    return happens


class Rules:
    """Takes one event after the other.

    Its clock stands while the machine sleeps: so one that was frozen is not late, and gives nobody
    up because of that. A clock that goes back does no harm either.
    """

    def __init__(self, clock: Callable[[], float], wake: Callable[[float | None], None]) -> None:
        """`wake` is to call `tick` after so many seconds, and not before; None: never."""
        self._clock, self.wake = clock, wake
        self.time = clock()  # when it was looked at last
        self.slept = 0.0
        self.now = self.time  # of the event, by our own clock
        self._waiting: list[Callable[[], None]] = []

    def _look_at_clock(self) -> float:
        before, self.time = self.time, self._clock()
        passed = self.time - before
        self.slept += max(0.0, passed - STRIDE_S) + min(0.0, passed)
        return self.time - self.slept

    @event
    def tick(self) -> None:
        """Time has passed."""

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
        self.wake(None if self.is_over else self._due_s())

    def _follow(self, rule: Callable[[], None]) -> None:
        """A rule, and what follows from it and from the time."""
        raise NotImplementedError

    @property
    def is_over(self) -> bool:
        """Whether nothing can follow any more."""
        raise NotImplementedError

    def _times(self) -> Iterable[float]:
        """When something may follow, though nothing happens."""
        raise NotImplementedError

    def _due_s(self) -> float:
        later, now = [time for time in self._times() if time > self.now], self._look_at_clock()
        return max(0.01, min([TURN_S, *(time - now for time in later)]))

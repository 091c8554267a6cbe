"""The times at which something is due, for any number of keys: none is looked for among all.

Most deadlines are put off again and again, as that of a launcher that beats. That costs a look-up:
an entry keeps its place in the heap until this time comes, and is then put where it belongs.
"""

from __future__ import annotations

import heapq
from math import inf

from spawnlaunch.base import machine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from spawnlaunch.gang.stream import EventLoop


class Deadlines:
    """One time for each key. No call takes longer than the logarithm of their number, on average.

    Times are of any one clock, in seconds.
    """

    def __init__(self) -> None:
        self._times: dict[Any, tuple[float, float]] = {}  # and its place in the heap
        self._heap: list[tuple[float, int, Any]] = []
        self._count = 0  # so that keys are never compared

    def __len__(self) -> int:
        return len(self._times)

    def __contains__(self, key: Any) -> bool:
        return key in self._times

    def set(self, key: Any, when: float) -> None:
        """It is due then, whatever was set before."""
        _, placed = self._times.get(key, (inf, inf))
        if when < placed:
            self._put(key, when)
        else:
            self._times[key] = when, placed

    def drop(self, key: Any) -> None:
        """It is not due any more, if it was."""
        self._times.pop(key, None)

    def first(self) -> tuple[float, Any]:
        """When the next is due, and its key; (inf, None): there is none."""
        while self._heap:
            placed, _, key = self._heap[0]
            when, its_place = self._times.get(key, (inf, -inf))
            if placed == its_place == when:
                return when, key
            heapq.heappop(self._heap)
            if placed == its_place:
                self._put(key, when)
        return inf, None

    def due(self, now: float) -> list[Any]:
        """The keys whose time has come, the earliest first; they are due no more."""
        due = []
        while self.first()[0] <= now:
            due.append(self.pop())
        return due

    def pop(self) -> Any:
        """The first key, of at least one; it is due no more."""
        self.first()
        _, _, key = heapq.heappop(self._heap)
        del self._times[key]
        return key

    def _put(self, key: Any, when: float) -> None:
        self._times[key] = when, when
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, key))


class Alarms:
    """An event loop for many connections: of their alarms it has one, that which is the next.

    They are of `machine.running_s`, as those of the loop itself.
    """

    def __init__(self, loop: EventLoop) -> None:
        self._loop, self._deadlines = loop, Deadlines()
        self.watch, self.forget = loop.watch, loop.forget

    def alarm(
        self,
        call: Callable[[], None],
        after_s: float | None,
        always: bool = False,  # noqa: ARG002 - no connection says so
    ) -> None:
        """See run.events.Loop."""
        if after_s is None:
            self._deadlines.drop(call)
        else:
            self._deadlines.set(call, machine.running_s() + after_s)
        self._set()

    def end(self) -> None:
        """None is called any more."""
        self._deadlines = Deadlines()
        self._set()

    def _set(self) -> None:
        when, _ = self._deadlines.first()
        self._loop.alarm(self._ring, None if when == inf else when - machine.running_s())

    def _ring(self) -> None:
        now = machine.running_s()
        while self._deadlines.first()[0] <= now:  # one may take another back
            self._deadlines.pop()()
        self._set()

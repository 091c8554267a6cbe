"""Deadlines for any number of keys, without a search through all of them.

Most deadlines are postponed again and again, as that of a launcher with each beat. That costs one
look-up: an entry keeps its place in the heap until its old time comes, and is then placed again.
"""

from __future__ import annotations

import heapq
from math import inf

from spawnlaunch.base import machine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from spawnlaunch.multinode.stream import EventLoop


class Deadlines:
    """A deadline for each key; a call takes logarithmic time in their number, on average.

    Times are in seconds, of any one clock.
    """

    def __init__(self) -> None:
        self._times: dict[Any, tuple[float, float]] = {}  # key -> deadline, and place in the heap
        self._heap: list[tuple[float, int, Any]] = []
        self._count = 0  # so that keys are never compared

    def __len__(self) -> int:
        return len(self._times)

    def __contains__(self, key: Any) -> bool:
        return key in self._times

    def set(self, key: Any, when: float) -> None:
        """Set the deadline of a key, in place of an earlier one."""
        _, placed = self._times.get(key, (inf, inf))
        if when < placed:
            self._put(key, when)
        else:
            self._times[key] = when, placed

    def drop(self, key: Any) -> None:
        """Remove the deadline of a key, if it has one."""
        self._times.pop(key, None)

    def first(self) -> tuple[float, Any]:
        """The earliest deadline and its key; (inf, None) where there is none."""
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
        """Remove and return the keys with deadlines up to `now`, the earliest first."""
        due = []
        while self.first()[0] <= now:
            due.append(self.pop())
        return due

    def pop(self) -> Any:
        """Remove and return the key with the earliest deadline; there must be one."""
        self.first()
        _, _, key = heapq.heappop(self._heap)
        del self._times[key]
        return key

    def _put(self, key: Any, when: float) -> None:
        self._times[key] = when, when
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, key))


class Alarms:
    """An event loop for many connections, which sets one alarm of the real loop: the next one.

    Times are of `machine.running_s`, as those of the loop itself.
    """

    def __init__(self, loop: EventLoop) -> None:
        self._loop, self._deadlines = loop, Deadlines()
        self.watch, self.forget = loop.watch, loop.forget

    def alarm(
        self,
        call: Callable[[], None],
        after_s: float | None,
        always: bool = False,  # noqa: ARG002 - no connection sets it
    ) -> None:
        """Set or remove an alarm, as base.events.Loop does."""
        if after_s is None:
            self._deadlines.drop(call)
        else:
            self._deadlines.set(call, machine.running_s() + after_s)
        self._set()

    def _set(self) -> None:
        when, _ = self._deadlines.first()
        self._loop.alarm(self._ring, None if when == inf else when - machine.running_s())

    def _ring(self) -> None:
        now = machine.running_s()
        while self._deadlines.first()[0] <= now:  # one call may remove another alarm
            self._deadlines.pop()()
        self._set()

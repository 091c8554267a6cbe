"""Asks the ranks what torch has recorded, now and then, and keeps what that says of them together.

An answer costs a rank some CPU time, with the number of collectives that its recorder keeps. So it
is asked again only when that is a small share of the time that has passed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from spawnlaunch.rollcall import asked, culprits
from spawnlaunch.watch import sample

LOOK_S, EVERY_S = 1.5, 0.03  # how long the main threads are looked at, and how often
REST_S = 2.5  # at least, until the next question
SHARE = 0.003  # of a rank's time
PATIENCE_S = 10.0  # with an answer: its thread needs the GIL, which a hanging rank may hold


class Waiting:
    """What the ranks of each launch have told last, as a verdict by the launch's name."""

    def __init__(self, look_s: float = LOOK_S) -> None:
        self.verdicts: Mapping[str, culprits.Verdict] = {}
        self._look_s = look_s
        self._asked: dict[tuple[str, int], asked.Asked] = {}
        self._answers: dict[str, dict[int, asked.Answer]] = {}
        self._due = self._until = 0.0  # monotonic clock

    @property
    def fds(self) -> list[int]:
        """Through which more of an answer comes; empty where none is awaited."""
        return [one.fd for one in self._asked.values()]

    def ask(self, samples: Sequence[sample.Sample]) -> None:
        """Ask these ranks, if it is time to."""
        now = time.monotonic()
        if self._asked or now < self._due:
            return
        self._until = now + self._look_s + PATIENCE_S
        self._answers = {}
        for one in samples:
            try:
                self._asked[one.launch, one.rank] = asked.Asked(
                    one.pid, one.start, self._look_s, EVERY_S
                )
            except OSError:  # it has no torch, or is another's
                continue
        self._due = now + self._look_s + REST_S

    def read(self) -> bool:
        """Read what has come; whether all have answered, or will not: there are new verdicts."""
        if not self._asked:
            return False
        for (launch, rank), one in list(self._asked.items()):
            with suppress(OSError):  # it has ended, or tells what cannot be read
                answer = one.read()
                if answer is None and time.monotonic() < self._until:
                    continue
                if answer:
                    self._answers.setdefault(launch, {})[rank] = answer
            one.close()
            del self._asked[launch, rank]
        if self._asked:
            return False
        now = time.monotonic()
        self.verdicts = {name: culprits.judged(told) for name, told in self._answers.items()}
        costs = [one.cost_s for told in self._answers.values() for one in told.values()]
        self._due = now + max(REST_S, max(costs, default=0.0) / SHARE - self._look_s)
        return True

"""The samples of some minutes, and what stands out in them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from spawnlaunch.watch import sample
from spawnlaunch.watch.notes import Note, notes

KEPT = 240  # samples of each rank


class Histories:
    """The last samples of all launches that live."""

    def __init__(self) -> None:
        self._of: dict[str, dict[int, deque[sample.Sample]]] = {}

    def add(self, samples: Sequence[sample.Sample]) -> None:
        """Add the samples of one look; a rank that has none has ended."""
        before, self._of = self._of, {}
        for launch, ranks in sample.by_launch(samples).items():
            old = before.get(launch, {})
            self._of[launch] = {one.rank: old.get(one.rank, deque(maxlen=KEPT)) for one in ranks}
            for one in ranks:
                self._of[launch][one.rank].append(one)

    def notes(self) -> dict[str, list[Note]]:
        """What stands out, by launch."""
        now = time.monotonic()
        return {launch: notes(history, now) for launch, history in self._of.items()}

"""Which samples a step trains on: pure functions of the seed, the position and the rank.

The samples of all epochs form one endless stream. Position p of it belongs to epoch p // length,
and every epoch is a fresh permutation. A step takes the next stretch of the stream whatever the
number of ranks is, so a run is described by one number, the samples consumed by all ranks together,
and no epoch ends in a short batch.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


def permutation(length: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """The order of ``length`` samples in one epoch, as an array of shape (length,).

    Random keys are sorted instead of shuffling in place: NumPy promises that the raw stream of
    PCG64 stays what it is (numpy.org, "Compatibility policy" of numpy.random), and makes no such
    promise for ``Generator.permutation``.
    """
    keys = np.random.PCG64(np.random.SeedSequence((seed, epoch))).random_raw(length)
    return np.argsort(np.asarray(keys), kind="stable").astype(np.int64)


def share(total: int, parts: int, part: int) -> range:
    """The ``part``-th of ``parts`` neighbouring stretches of range(total), as even as can be."""
    return range(part * total // parts, (part + 1) * total // parts)


class Batch(NamedTuple):
    """The samples of one forward pass, and the place of each in the run."""

    places: range
    indices: list[int]


@dataclass(frozen=True)
class Order:
    """Which samples each forward pass of a run takes.

    A step takes the next ``global_batch`` positions of the stream. The ranks share them in
    neighbouring blocks, and a rank shares its block among its ``accumulate`` forward passes; so the
    blocks, joined in rank order, are the batch that a single rank would have taken in one pass.
    """

    length: int  # of the data set
    seed: int
    global_batch: int
    accumulate: int = 1
    rank: int = 0
    world_size: int = 1

    def positions(self, first: int, micro: int) -> range:
        """Where in the stream this rank's ``micro``-th pass of the step at ``first`` reads."""
        block = share(self.global_batch, self.world_size, self.rank)
        part = share(len(block), self.accumulate, micro)
        begin = first + block.start + part.start
        return range(begin, begin + len(part))

    def indices(self, positions: range) -> list[int]:
        """The samples at these positions of the stream."""
        return [int(self._epoch(p // self.length)[p % self.length]) for p in positions]

    def batch(self, first: int, micro: int) -> Batch:
        """The samples of this rank's ``micro``-th pass of the step at ``first``."""
        positions = self.positions(first, micro)
        return Batch(positions, self.indices(positions))

    def batches(self, first: int, steps: int) -> Iterator[Batch]:
        """The samples of every forward pass of ``steps`` steps, from position ``first`` on."""
        for step in range(steps):
            for micro in range(self.accumulate):
                yield self.batch(first + step * self.global_batch, micro)

    def _epoch(self, epoch: int) -> npt.NDArray[np.int64]:
        return _recent_permutation(self.length, self.seed, epoch)


# A batch touches two epochs where one ends, and seldom more.
_recent_permutation = functools.lru_cache(maxsize=2)(permutation)

"""Which samples a step trains on: pure functions of the seed, the position and the rank.

The samples of all epochs form one endless stream. Position p of it belongs to epoch p // length,
and every epoch is a fresh permutation. A step takes the next stretch of the stream whatever the
number of ranks is, so a run is described by one number, the samples consumed by all ranks together,
and no epoch ends in a short batch.
"""

from __future__ import annotations

from collections.abc import Iterator

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


class RankBatches:
    """The batches of one rank, one list of sample indices per step; a DataLoader batch sampler.

    Rank r of a world takes the r-th block of ``batch_size`` samples of each global batch, so the
    blocks of all ranks, joined in rank order, are the batch that a single rank would have taken.
    """

    def __init__(
        self,
        length: int,
        seed: int,
        batch_size: int,
        steps: int,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.length = length
        self.seed = seed
        self.batch_size = batch_size
        self.steps = steps
        self.rank = rank
        self.world_size = world_size

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[list[int]]:
        epoch, order = -1, np.empty(0, dtype=np.int64)
        for step in range(self.steps):
            first = (step * self.world_size + self.rank) * self.batch_size
            batch: list[int] = []
            for position in range(first, first + self.batch_size):
                if position // self.length != epoch:
                    epoch = position // self.length
                    order = permutation(self.length, self.seed, epoch)
                batch.append(int(order[position % self.length]))
            yield batch

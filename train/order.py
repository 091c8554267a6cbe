"""Which samples each forward pass of a run takes: pure functions of seed, epoch and position.

The samples of all epochs form one endless stream. Position p of it belongs to epoch p // length,
and every epoch is in an order of its own: shuffled (`Shuffled`), or with samples of similar length
side by side (`ByLength`). A step takes the next stretch of the stream whatever the number of ranks
is, so a run is described by one number, the samples consumed by all ranks together, and no epoch
ends in a short batch.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

STEPS = 128  # about, of a window in which samples are sorted by their lengths
NO_END = 1 << 62  # the length of a data set of unknown length

Ints = npt.NDArray[np.int64]


def share(total: int, parts: int, part: int) -> range:
    """The ``part``-th of ``parts`` neighbouring stretches of range(total), as even as can be."""
    return range(part * total // parts, (part + 1) * total // parts)


def permutation(length: int, *words: int) -> Ints:
    """The permutation of ``length`` samples that ``words``, such as seed and epoch, decide.

    Random keys are sorted instead of shuffling in place: NumPy promises that the raw stream of
    PCG64 stays what it is (numpy.org, "Compatibility policy" of numpy.random), and makes no such
    promise for ``Generator.permutation``.
    """
    keys = np.random.PCG64(np.random.SeedSequence(words)).random_raw(length)
    return np.argsort(np.asarray(keys), kind="stable").astype(np.int64)


# A batch touches two epochs, or windows, where one ends, and seldom more.
shuffle = functools.lru_cache(maxsize=2)(permutation)


class Kind(Protocol):
    """The order of the samples in an epoch of ``length`` places, and its name in a checkpoint."""

    length: int
    name: str

    def at(self, epoch: int, places: Ints) -> Ints:
        """The samples at these places of an epoch."""


class Shuffled:
    """Every sample once in an epoch, in a random order."""

    name = "shuffled"

    def __init__(self, length: int, seed: int) -> None:
        self.length = length
        self.seed = seed

    def at(self, epoch: int, places: Ints) -> Ints:
        samples: Ints = shuffle(self.length, self.seed, epoch)[places]
        return samples


class Unshuffled:
    """Samples that have no index, and are numbered as they are read, in ``parts`` of shards."""

    def __init__(self, length: int, parts: str = "") -> None:
        self.length = length
        self.name = "as they come" + parts

    def at(self, epoch: int, places: Ints) -> Ints:
        return epoch * self.length + places


class Sorted(NamedTuple):
    """The samples of a window in the order in which they are taken, and where its steps begin."""

    samples: Ints
    begins: Ints


class ByLength:
    """The samples of another order, regrouped so that those of similar lengths share a step.

    Each window of that order is sorted by length and cut into steps, which come in a shuffled
    order. A step has as many samples as ``budget`` tokens hold when all are padded to the longest
    of them.
    """

    def __init__(self, kind: Kind, lengths: npt.NDArray[Any], seed: int, budget: int) -> None:
        self.kind = kind
        self.lengths = lengths
        self.length = kind.length
        self.seed = seed
        self.budget = budget
        total = max(self.length, int(lengths.sum(dtype=np.int64)))
        self.longest = max(1, int(lengths.max()))
        self.windows = max(1, round(total / (STEPS * budget)))
        checksum = zlib.crc32(np.ascontiguousarray(lengths).data)
        self.name = f"{kind.name}, by lengths of CRC-32 {checksum:08x}, {budget:,} tokens a step"
        self.sorted = functools.lru_cache(maxsize=2)(self._sorted)

    @functools.cached_property
    def batch(self) -> float:
        """The mean number of samples of a step in the first window."""
        first = share(self.length, self.windows, 0)
        tokens = np.sort(self._tokens(self.kind.at(0, np.arange(len(first)))))
        return len(first) / len(steps_of(tokens, self.budget, self.longest))

    def count(self, position: int) -> int:
        """The number of samples of the step that begins at a position."""
        epoch, place = divmod(position, self.length)
        window = self._window(place)
        begins = self.sorted(epoch, window).begins + share(self.length, self.windows, window).start
        return int(begins[np.searchsorted(begins, place, "right")]) - place

    def at(self, epoch: int, places: Ints) -> Ints:
        samples = np.empty_like(places)
        for window, here in groups(self._window(places)):
            begin = share(self.length, self.windows, window).start
            samples[here] = self.sorted(epoch, window).samples[places[here] - begin]
        return samples

    def _window(self, place: Any) -> Any:
        """The window that a place of an epoch is in, or each of an array of them."""
        return ((place + 1) * self.windows - 1) // self.length

    def _sorted(self, epoch: int, window: int) -> Sorted:
        places = share(self.length, self.windows, window)
        samples = self.kind.at(epoch, np.arange(places.start, places.stop))
        tokens = self._tokens(samples)
        by_length = np.argsort(tokens, kind="stable")
        sizes = steps_of(tokens[by_length], self.budget, self.longest)
        steps = np.split(samples[by_length], np.cumsum(sizes)[:-1])
        taken = [steps[step] for step in permutation(len(steps), self.seed, epoch, 3, window)]
        return Sorted(np.concatenate(taken), np.cumsum([0, *map(len, taken)]))

    def _tokens(self, samples: Ints) -> Ints:
        tokens: Ints = np.maximum(self.lengths[samples], 1)
        return tokens


def steps_of(tokens: Ints, budget: int, longest: int) -> list[int]:
    """How many samples of these rising lengths each step takes, for a budget of padded tokens.

    No step takes fewer than the budget holds of the ``longest`` sample, so that each rank finds one
    in it: the few that are left at the end are given to other steps, one by one.
    """
    sizes: list[int] = []
    rest = len(tokens)
    while rest:
        sizes.insert(0, min(rest, budget // int(tokens[rest - 1])))
        rest -= sizes[0]
    if len(sizes) > 1 and sizes[0] < budget // longest:
        few = sizes.pop(0)
        sizes = [size + len(share(few, len(sizes), at)) for at, size in enumerate(sizes)]
    return sizes


def groups(numbers: Ints) -> Iterator[tuple[int, Any]]:
    """Yield each number that occurs, and a mask of its places."""
    for number in np.unique(numbers).tolist():
        yield number, numbers == number


class Batch(NamedTuple):
    """The samples of one forward pass, and the place of each in the run."""

    places: Sequence[int]
    indices: Sequence[int]


@dataclass(frozen=True)
class Order:
    """Which samples each forward pass of a run takes.

    A step takes the next ``global_batch`` positions of the stream, or as many as a budget of tokens
    holds. The ranks share them in neighbouring blocks, and a rank shares its block among its
    ``accumulate`` forward passes; so the blocks, joined in rank order, are the batch that a single
    rank would have taken in one pass. If the stream is ``divided``, a rank numbers the samples of
    its own part.
    """

    kind: Kind
    global_batch: int
    accumulate: int = 1
    rank: int = 0
    world_size: int = 1
    divided: bool = False

    @property
    def mean(self) -> float:
        """The mean number of samples of a step."""
        return self.kind.batch if isinstance(self.kind, ByLength) else self.global_batch

    def count(self, first: int) -> int:
        """How many samples the step at position ``first`` takes, of all ranks together."""
        return self.kind.count(first) if isinstance(self.kind, ByLength) else self.global_batch

    def batch(self, first: int, micro: int) -> Batch:
        """The samples of this rank's ``micro``-th pass of the step at ``first``."""
        places = self.block(first)
        part = share(len(places), self.accumulate, micro)
        return self.at(places[part.start : part.stop])

    def block(self, first: int) -> range:
        """The positions of this rank's samples of the step at ``first``."""
        count = self.count(first)
        of_rank = share(count, self.world_size, self.rank)
        begin = first // count * len(of_rank) if self.divided else first + of_rank.start
        return range(begin, begin + len(of_rank))

    def batches(self, first: int, steps: int) -> Iterator[Batch]:
        """The samples of every forward pass of ``steps`` steps, from position ``first`` on."""
        for _ in range(steps):
            for micro in range(self.accumulate):
                yield self.batch(first, micro)
            first += self.count(first)

    def at(self, places: Sequence[int]) -> Batch:
        """The samples at these positions of the stream."""
        epochs, inside = np.divmod(np.asarray(places, dtype=np.int64), self.kind.length)
        indices = np.empty_like(inside)
        for epoch, here in groups(epochs):
            indices[here] = self.kind.at(epoch, inside[here])
        return Batch(places, indices.tolist())

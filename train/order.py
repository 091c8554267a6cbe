"""Which samples each forward pass of a run takes: pure functions of seed, epoch and position.

The samples of all epochs form one endless stream. Position p of it belongs to epoch p // length,
and every epoch is in an order of its own: shuffled (`Shuffled`), by blocks that lie together
(`Blocks`), drawn by weights (`Weighted`), or any of these with samples of like length side by side
(`ByLength`). A step takes the next stretch of the stream whatever the number of ranks is, so a run
is described by one number, the samples consumed by all ranks together, and no epoch ends in a short
batch.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

VERSION = 2  # of these orders; the first one stored the permutation of any number of samples
STORED = 1 << 20  # so many samples have a stored permutation at most: 8 MiB
ROUNDS = 8
PIECE = 256  # weights of which only the sum is kept
STEPS = 128  # about, of a window in which samples are sorted by their lengths
NO_END = 1 << 62  # the length of what has none that is known

Ints = npt.NDArray[np.int64]
Words = tuple[int, ...]


def share(total: int, parts: int, part: int) -> range:
    """The ``part``-th of ``parts`` neighbouring stretches of range(total), as even as can be."""
    return range(part * total // parts, (part + 1) * total // parts)


def permutation(length: int, *words: int) -> Ints:
    """The stored order of ``length`` samples that some words decide, such as seed and epoch.

    Random keys are sorted instead of shuffling in place: NumPy promises that the raw stream of
    PCG64 stays what it is (numpy.org, "Compatibility policy" of numpy.random), and makes no such
    promise for ``Generator.permutation``.
    """
    keys = np.random.PCG64(np.random.SeedSequence(words)).random_raw(length)
    return np.argsort(np.asarray(keys), kind="stable").astype(np.int64)


def scrambled(values: Any, key: Any) -> Any:
    """64 bits for each of these, as SplitMix64 has them (Steele, Lea, Flood, OOPSLA 2014)."""
    z = values * np.uint64(0x9E3779B97F4A7C15) + key
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def keys_of(words: Words, count: int) -> Any:
    """So many keys of 64 bits, which the words decide."""
    return np.random.SeedSequence(words).generate_state(count, np.uint64)


class Bijection:
    """A permutation of range(length) that is computed, not stored; both ways, for arrays.

    A number is a pair (left, right) of digits below about sqrt(length). Each round adds to one of
    them, modulo its base, a pseudorandom function of the other: a Feistel network on pairs of any
    base (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002). The pairs are
    fewer than sqrt(length) more than the samples; what leads to one of those goes on from there,
    until it arrives at a sample (cycle walking, ibid.).
    """

    def __init__(self, length: int, *words: int) -> None:
        self.length = length
        left = math.isqrt(length - 1) + 1
        self.base = -(-length // left)
        self.bases = (np.uint64(left), np.uint64(self.base))
        self.keys = keys_of(words, ROUNDS)

    def at(self, places: Ints) -> Ints:
        """The samples at these places, each in range(length)."""
        return self._walk(places, range(ROUNDS), np.add)

    def places(self, samples: Ints) -> Ints:
        """Where these samples are: the inverse of ``at``."""
        return self._walk(samples, range(ROUNDS - 1, -1, -1), np.subtract)

    def _walk(self, numbers: Ints, rounds: range, turn: Callable[..., Any]) -> Ints:
        found = self._network(numbers.astype(np.uint64), rounds, turn)
        while (outside := found >= self.length).any():
            found[outside] = self._network(found[outside], rounds, turn)
        walked: Ints = found.astype(np.int64)
        return walked

    def _network(self, numbers: Any, rounds: range, turn: Callable[..., Any]) -> Any:
        digits = list(np.divmod(numbers, self.bases[1]))
        for number in rounds:
            one, base = number % 2, self.bases[number % 2]
            added = scrambled(digits[1 - one], self.keys[number]) % base
            digits[one] = turn(digits[one] + base, added) % base
        return digits[0] * self.bases[1] + digits[1]


# A batch touches two epochs, or windows, where one ends, and seldom more.
@functools.lru_cache(maxsize=2)
def shuffle(length: int, words: Words, stored: bool = False) -> Callable[[Ints], Ints]:
    """From places in range(length) to the samples there, in an order that the words decide.

    Up to 2^20 samples it is a stored permutation: a Feistel network on few pairs is uneven.
    """
    if stored or length <= STORED:
        return permutation(length, *words).__getitem__
    return Bijection(length, *words).at


class Kind(Protocol):
    """The order of the samples in an epoch of ``length`` places, and its name in a checkpoint."""

    length: int
    name: str

    def at(self, epoch: int, places: Ints) -> Ints:
        """The samples at these places of an epoch."""


class Shuffled:
    """Every sample once, in any order."""

    name = "shuffled"

    def __init__(self, length: int, seed: int, version: int = VERSION) -> None:
        self.length = length
        self.seed = seed
        self.stored = version == 1

    def at(self, epoch: int, places: Ints) -> Ints:
        return shuffle(self.length, (self.seed, epoch), self.stored)(places)


class AsTheyCome:
    """Samples that have no index, and are numbered as they are read."""

    name = "as they come"

    def __init__(self, length: int) -> None:
        self.length = length

    def at(self, epoch: int, places: Ints) -> Ints:
        return epoch * self.length + places


class Blocks:
    """Every sample once; ``window`` blocks of neighbours are mixed with each other at a time.

    The blocks, such as row groups or shards, come in a shuffled order, and so do all samples of a
    window: who keeps the blocks of a window open reads each block once in an epoch.
    """

    def __init__(self, lengths: Ints, seed: int, window: int) -> None:
        self.first = np.cumsum(lengths) - lengths
        self.lengths = lengths
        self.length = int(lengths.sum())
        self.seed = seed
        self.window = window
        self.name = f"windows of {window} blocks {digest(lengths)}"
        self.layout = functools.lru_cache(maxsize=2)(self._layout)

    def at(self, epoch: int, places: Ints) -> Ints:
        blocks, begins, edges = self.layout(epoch)
        found = np.empty_like(places)
        for window, here in groups(np.searchsorted(edges, places, "right") - 1):
            begin = edges[window]
            size = int(edges[window + 1] - begin)
            words = (self.seed, epoch, 2, window)
            inside = shuffle(size, words)(places[here] - begin) + begin
            block = np.searchsorted(begins, inside, "right") - 1
            found[here] = self.first[blocks[block]] + inside - begins[block]
        return found

    def _layout(self, epoch: int) -> tuple[Ints, Ints, Ints]:
        """The blocks in the order of this epoch; where each begins, and where each window."""
        blocks = permutation(len(self.lengths), self.seed, epoch, 1)
        begins = np.concatenate(([0], np.cumsum(self.lengths[blocks])))
        return blocks, begins, np.append(begins[: -1 : self.window], self.length)


class Weighted:
    """As many draws as there are samples, each in proportion to its weight.

    Each of ``length`` equal parts of the sum of weights has one draw, uniform in it: a sample with
    n times the mean weight is drawn n times in an epoch, give or take one at each end; with equal
    weights, once. Of the weights only the sums of 256 at a time are kept.
    """

    def __init__(self, weights: npt.NDArray[Any], seed: int) -> None:
        self.weights = weights
        self.length = len(weights)
        self.seed = seed
        self.ends = np.cumsum(sums(weights, np.float64))
        self.name = f"weights {digest(self.ends)}"

    def at(self, epoch: int, places: Ints) -> Ints:
        parts = shuffle(self.length, (self.seed, epoch))(places)
        jitter = scrambled(parts.astype(np.uint64), keys_of((self.seed, epoch, 4), 1)[0])
        drawn = parts + (jitter >> np.uint64(32)) / 2.0**32
        drawn = np.minimum(drawn, np.nextafter(parts + 1.0, 0)) * (self.ends[-1] / self.length)
        return self._found(drawn)

    def _found(self, drawn: npt.NDArray[np.float64]) -> Ints:
        """The samples whose parts of the sum of weights these numbers are in."""
        last = np.searchsorted(self.ends, self.ends[-1])  # the last piece with any weight
        piece = np.minimum(np.searchsorted(self.ends, drawn, "right"), last)
        left = drawn - np.where(piece, self.ends[piece - 1], 0.0)
        inside = np.minimum(piece[:, None] * PIECE + np.arange(PIECE), self.length)
        weights = np.where(inside < self.length, self.weights[inside.clip(max=self.length - 1)], 0)
        ends = np.cumsum(weights, axis=1, dtype=np.float64)
        # Where the sums were rounded, it is the last sample with any weight.
        most = (ends < ends[:, -1:]).sum(axis=1)
        one: Ints = piece * PIECE + np.minimum((ends <= left[:, None]).sum(axis=1), most)
        return one


class Sorted(NamedTuple):
    """The samples of a window in the order in which they are taken, and where its steps begin."""

    samples: Ints
    begins: Ints


class ByLength:
    """The samples of another kind of order, with those of like lengths in one step.

    Each window of it is sorted by length and cut into steps, which come in a shuffled order. A step
    has as many samples as ``budget`` tokens hold when all are padded to the longest of them. The
    budget is the one in force where the window begins: ``budgets`` has (position in the stream,
    tokens of a step), the first for position 0.
    """

    def __init__(
        self, kind: Kind, lengths: npt.NDArray[Any], seed: int, budgets: Sequence[tuple[int, int]]
    ) -> None:
        self.kind = kind
        self.lengths = lengths
        self.length = kind.length
        self.seed = seed
        self.budgets = tuple(budgets)
        parts = sums(lengths, np.int64)
        mean = max(1.0, float(parts.sum()) / len(lengths))
        self.longest = max(1, int(lengths.max()))
        self.windows = max(1, round(mean * self.length / (STEPS * self.budgets[0][1])))
        self.name = f"{kind.name}, by lengths {digest(parts)}"
        self.sorted = functools.lru_cache(maxsize=2)(self._sorted)

    @functools.cached_property
    def batch(self) -> float:
        """The mean number of samples of a step in the first window, by the budget now in force."""
        first = share(self.length, self.windows, 0)
        tokens = np.sort(self._tokens(self.kind.at(0, np.arange(len(first)))))
        return len(first) / len(steps_of(tokens, self.budgets[-1][1], self.longest))

    def count(self, position: int) -> int:
        """How many samples the step takes that begins there."""
        epoch, place = divmod(position, self.length)
        window = self._window(place)
        begins = self.sorted(epoch, window).begins + share(self.length, self.windows, window).start
        return int(begins[np.searchsorted(begins, place, "right")]) - place

    def fewest(self, position: int) -> int:
        """The samples of the smallest step from there to the end of its window."""
        epoch, place = divmod(position, self.length)
        window = self._window(place)
        place -= share(self.length, self.windows, window).start
        begins = self.sorted(epoch, window).begins
        return int(np.diff(begins[np.searchsorted(begins, place) :]).min())

    def at(self, epoch: int, places: Ints) -> Ints:
        found = np.empty_like(places)
        for window, here in groups(self._window(places)):
            begin = share(self.length, self.windows, window).start
            found[here] = self.sorted(epoch, window).samples[places[here] - begin]
        return found

    def _window(self, place: Any) -> Any:
        """The window that a place of an epoch is in, or each of an array of them."""
        return ((place + 1) * self.windows - 1) // self.length

    def _sorted(self, epoch: int, window: int) -> Sorted:
        places = share(self.length, self.windows, window)
        begin = epoch * self.length + places.start
        budget = next(tokens for since, tokens in reversed(self.budgets) if since <= begin)
        samples = self.kind.at(epoch, np.arange(places.start, places.stop))
        tokens = self._tokens(samples)
        by_length = np.argsort(tokens, kind="stable")
        sizes = steps_of(tokens[by_length], budget, self.longest)
        steps = np.split(samples[by_length], np.cumsum(sizes)[:-1])
        taken = [steps[one] for one in permutation(len(steps), self.seed, epoch, 3, window)]
        return Sorted(np.concatenate(taken), np.cumsum([0, *map(len, taken)]))

    def _tokens(self, samples: Ints) -> Ints:
        tokens: Ints = np.maximum(self.lengths[samples], 1)
        return tokens


def steps_of(tokens: Ints, budget: int, longest: int) -> list[int]:
    """How many samples of these rising lengths each step takes, for a budget of padded tokens.

    None takes fewer than the budget holds of the ``longest`` there is, so that each rank finds one
    in it: what few are left at the end are given to other steps, one by one.
    """
    sizes: list[int] = []
    left = len(tokens)
    while left:
        sizes.insert(0, min(left, budget // int(tokens[left - 1])))
        left -= sizes[0]
    if len(sizes) > 1 and sizes[0] < budget // longest:
        few = sizes.pop(0)
        sizes = [size + len(share(few, len(sizes), at)) for at, size in enumerate(sizes)]
    return sizes


def groups(numbers: Ints) -> Iterator[tuple[int, Any]]:
    """Each number that occurs, and a mask of where."""
    for number in np.unique(numbers).tolist():
        yield number, numbers == number


def sums(values: npt.NDArray[Any], dtype: Any) -> npt.NDArray[Any]:
    """The sums of each 256 values, without a copy of them all, which `reduceat` would make."""
    parts = (values[at : at + PIECE**2] for at in range(0, len(values), PIECE**2))
    return np.concatenate(
        [np.add.reduceat(part, np.arange(0, len(part), PIECE), dtype=dtype) for part in parts]
    )


def digest(values: npt.NDArray[Any]) -> str:
    """A short text that two arrays of different numbers hardly share."""
    return f"CRC-32 {zlib.crc32(np.ascontiguousarray(values).tobytes()):08x}"


class Batch(NamedTuple):
    """The samples of one forward pass, and the place of each in the run."""

    places: Sequence[int]
    indices: Sequence[int]


@dataclass(frozen=True)
class Order:
    """Which samples each forward pass of a run takes.

    A step takes the next ``global_batch`` positions of the stream, or what a budget of tokens says.
    The ranks share them in neighbouring blocks, and a rank shares its block among its
    ``accumulate`` forward passes; so the blocks, joined in rank order, are the batch that a single
    rank would have taken in one pass.
    """

    kind: Kind
    global_batch: int
    accumulate: int = 1
    rank: int = 0
    world_size: int = 1
    version: int = VERSION

    @property
    def mean(self) -> float:
        """How many samples a step takes on the mean."""
        return self.kind.batch if isinstance(self.kind, ByLength) else self.global_batch

    def record(self, position: int) -> dict[str, Any]:
        """What a run that goes on from this position has to know to take the same samples."""
        budgets = self.kind.budgets if isinstance(self.kind, ByLength) else ()
        return {"version": self.version, "samples": position, "budgets": list(map(list, budgets))}

    def count(self, first: int) -> int:
        """How many samples the step at position ``first`` takes, of all ranks together."""
        return self.kind.count(first) if isinstance(self.kind, ByLength) else self.global_batch

    def batch(self, first: int, micro: int) -> Batch:
        """The samples of this rank's ``micro``-th pass of the step at ``first``."""
        # A run that goes on with more ranks may have begun with a smaller step, which is tried out.
        places = range(first, first + max(self.count(first), self.world_size * self.accumulate))
        block = share(len(places), self.world_size, self.rank)
        part = share(len(block), self.accumulate, micro)
        own = slice(block.start + part.start, block.start + part.stop)
        if not isinstance(self.kind, Blocks):
            return self.at(places[own])
        every = np.array(self.at(places).indices)
        by_index = np.argsort(every, kind="stable")[own]  # neighbours, to read few blocks
        return Batch((first + by_index).tolist(), every[by_index].tolist())

    def batches(self, first: int, steps: int) -> Iterator[Batch]:
        """The samples of every forward pass of ``steps`` steps, from position ``first`` on."""
        for _ in range(steps):
            for micro in range(self.accumulate):
                yield self.batch(first, micro)
            first += self.count(first)

    def at(self, places: Sequence[int]) -> Batch:
        """The samples at these positions of the stream."""
        epochs, inside = np.divmod(np.asarray(places, dtype=np.int64), self.kind.length)
        found = np.empty_like(inside)
        for epoch, here in groups(epochs):
            found[here] = self.kind.at(epoch, inside[here])
        return Batch(places, found.tolist())

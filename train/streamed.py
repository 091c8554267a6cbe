"""Read samples that have no index, as those of an IterableDataset, one after the other.

Every rank reads all of them and keeps its share. So each step has the samples that it has on any
number of ranks, if the data set gives the same ones each time, and to every rank. A resumed run
goes on from the data set's own ``state_dict``; without one it reads once more what it has read.
"""

from __future__ import annotations

import copy
import pickle
import zlib
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from .data import NO_MORE, Feed, Reader, own_state, seed_sample
from .distributed import agree
from .errors import StoppedError
from .order import Order


class State(NamedTuple):
    """A position in a data set: the pass, the place in all passes, and its ``state_dict``."""

    number: int = 0
    place: int = 0
    samples: Any = None


class Passes:
    """Reads all samples in turn, pass after pass; a sample's place seeds what it draws."""

    def __init__(self, reader: Reader, state: State) -> None:
        self.samples: Any = reader.samples
        self.split, self.seed = reader.split, reader.seed
        self.number, self.place, own = state
        self.coming = self._begun(own)

    def _begun(self, own: Any = None) -> Iterator[Any]:
        seed_sample(self.seed, self.split, self.place)
        if hasattr(self.samples, "set_epoch"):
            self.samples.set_epoch(self.number)
        if own not in (None, {}):
            self.samples.load_state_dict(copy.deepcopy(own))  # the data set may change it
        return iter(self.samples)

    def take(self) -> Any:
        """Return the next sample of this pass, or NO_MORE."""
        seed_sample(self.seed, self.split, self.place)
        sample = next(self.coming, NO_MORE)
        self.place += sample is not NO_MORE
        return sample

    def take_on(self) -> Any:
        """Return the next sample of this pass, or the first of the next pass."""
        for _ in range(2):
            if (sample := self.take()) is not NO_MORE:
                return sample
            self.number += 1
            self.coming = self._begun()
        raise StoppedError(
            f"the data set {self.split!r} gave {self.place:,} samples and no more when it was "
            "iterated again; let its __iter__ begin anew each time, or type a lower --steps"
        )

    def state(self) -> State:
        """The present position in the data set."""
        return State(self.number, self.place, own_state(self.samples))


class Trained(IterableDataset[Any]):
    """The batches of one rank from a position on, each with the pickled state after its step."""

    def __init__(self, reader: Reader, order: Order, first: int, steps: int, state: State) -> None:
        self.reader, self.order = reader, order
        self.first, self.steps, self.state = first, steps, state

    def __iter__(self) -> Iterator[tuple[Any, bytes]]:
        passes = Passes(self.reader, self.state)
        while passes.place < self.first:  # there is no state to go on from
            passes.take_on()
        for _ in range(self.steps):
            first, passing = passes.place, range(self.order.accumulate)
            own = [self.order.batch(first, micro).indices for micro in passing]
            kept: dict[int, Any] = {place: None for places in own for place in places}
            for place in range(first, first + self.order.count(first)):
                sample = passes.take_on()
                if place in kept:
                    kept[place] = sample
            state = pickle.dumps(passes.state())
            for places in own:
                yield self.reader.collated([kept[place] for place in places]), state


class Evaluated(IterableDataset[Any]):
    """The batches of one rank in one pass; None in a last round that has no samples for it."""

    def __init__(self, reader: Reader, size: int, rank: int, ranks: int) -> None:
        self.reader, self.state = reader, State(0, 0, reader.start)
        self.size, self.rank, self.ranks = size, rank, ranks

    def __iter__(self) -> Iterator[Any]:
        coming = iter(Passes(self.reader, self.state).take, NO_MORE)
        while True:
            own, rounds = [], -1
            for rounds, sample in enumerate(islice(coming, self.size * self.ranks)):
                if rounds // self.size == self.rank:
                    own.append(sample)
            if rounds < 0:
                return
            yield self.reader.collated(own) if own else None


class Stream:
    """The training batches of samples without an index, and the position in their data set."""

    def __init__(self, reader: Reader, order: Order) -> None:
        """Read the samples of the first step, which is tried out; ``reader`` has their index then.

        Raises RefusedError on all ranks where they are not the same for all.
        """
        self.reader, self.order = reader, order
        self.state = pickle.dumps(State(0, 0, reader.start))
        passes = Passes(reader, State())
        reader.first = [passes.take_on() for _ in range(order.count(0))]
        state: State = pickle.loads(pickle.dumps(passes.state()))
        # One more than the step has: a rank with one sample looks at the next, too.
        reader.first.append(passes.take_on())
        # A state may leave something out, as a buffer in which samples are shuffled.
        self.keeps = state.samples is not None
        if self.keeps and reader.start not in (None, {}):  # else it could not be set back
            again = Passes(reader, state).take_on()
            self.keeps = digest(again) == digest(reader.first[-1])
        agree(
            {f"the first sample of {reader.split!r}": digest(reader.first[0])},
            "dataset() has to give all samples to every rank, for the loop shares them out; leave "
            "its own division by rank out",
        )

    def batches(self, first: int, steps: int, workers: int, device: torch.device) -> Iterator[Any]:
        """Yield the batches of this rank; one loader process at most, for each would read all."""
        self.reader.first = None
        trained = Trained(self.reader, self.order, first, steps, pickle.loads(self.state))
        for batch, self.state in Feed(trained, None, min(workers, 1), device):
            yield batch

    def promise(self) -> str:
        """A line for the user on how such samples are read."""
        goes_on = "goes on from their state_dict" if self.keeps else "reads the earlier ones again"
        return (
            "samples without an index: every rank reads all of them; steps are the same on any "
            f"number of ranks if each pass gives the same samples; a resumed run {goes_on}"
        )

    def record(self) -> tuple[Any, ...]:
        """The record that ``go_on`` takes."""
        state: State = pickle.loads(self.state)
        return tuple(state if self.keeps else state._replace(samples=None))

    def go_on(self, record: tuple[Any, ...]) -> None:
        """Go on from a checkpoint; without a state in it the samples are read from the first on."""
        if record[2] is not None and self.keeps:
            self.state = pickle.dumps(State(*record))


def digest(value: Any) -> int:
    """A checksum of the numbers and texts in a sample; values of other types count as 0."""
    if isinstance(value, Tensor):
        value = value.detach().cpu().to_dense().float().numpy()
    if isinstance(value, np.ndarray):
        return zlib.crc32(np.ascontiguousarray(value).tobytes())
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return zlib.crc32(repr([digest(one) for one in value]).encode())
    return zlib.crc32(repr(value).encode()) if isinstance(value, (str, bytes, int, float)) else 0

"""Read samples that have no index, as those of an IterableDataset, one after the other.

A data set whose shards are a multiple of the ranks is divided: each rank reads its shards, and goes
on with as many ranks as it had. Of another one every rank reads all samples, and keeps its share.
So each step has the samples that it has on any number of ranks, if the data set gives the same ones
each time, and to every rank. A resumed run goes on from the data set's own ``state_dict``; without
one it reads once more what it has read.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch.utils.data import IterableDataset

from .checks import fingerprint
from .data import Reader, seed_sample, shards_of, state_of
from .distributed import agree
from .errors import StoppedError
from .feed import NO_MORE, Feed
from .order import Order


class State(NamedTuple):
    """A position in a data set: the pass, the place in all passes, and its ``state_dict``."""

    number: int = 0
    place: int = 0
    samples: Any = None


class Passes:
    """Reads all samples in turn, pass after pass; a sample's place seeds what it draws."""

    def __init__(self, reader: Reader, state: State) -> None:
        self.reader = reader
        self.samples: Any = reader.samples
        self.number, self.place, saved = state
        self.coming = self._begun(saved)

    def _begun(self, saved: Any = None) -> Iterator[Any]:
        self._seed()
        if hasattr(self.samples, "set_epoch"):
            self.samples.set_epoch(self.number)
        if saved not in (None, {}):
            self.samples.load_state_dict(copy.deepcopy(saved))  # the data set may change it
        return iter(self.samples)

    def _seed(self) -> None:
        reader = self.reader
        seed_sample(reader.seed, reader.split, self.place * reader.parts + reader.part)

    def take(self) -> Any:
        """Return the next sample of this pass, or NO_MORE."""
        self._seed()
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
            f"the data set {self.reader.split!r} gave {self.place:,} samples and no more when it "
            "was iterated again; let its __iter__ begin anew each time, or use a lower --steps"
        )

    def state(self) -> State:
        """The present position in the data set."""
        return State(self.number, self.place, state_of(self.samples))


class Trained(IterableDataset[Any]):
    """The batches of one rank from a position on, each with the pickled state after its step."""

    def __init__(self, reader: Reader, order: Order, first: int, steps: int, state: State) -> None:
        self.reader, self.order = reader, order
        self.first, self.steps, self.state = first, steps, state

    def __iter__(self) -> Iterator[tuple[Any, bytes]]:
        order, first = self.order, self.first
        reading = Passes(self.reader, self.state)
        if self.state.place == 0:  # there is no state to go on from
            for _ in range(order.block(first).start if order.divided else first):
                reading.take_on()
        for _ in range(self.steps):
            passes = [order.batch(first, micro).indices for micro in range(order.accumulate)]
            needed: dict[int, Any] = {place: None for places in passes for place in places}
            whole = range(first, first + order.count(first))
            for place in order.block(first) if order.divided else whole:
                sample = reading.take_on()
                if place in needed:
                    needed[place] = sample
            state = pickle.dumps(reading.state())
            for places in passes:
                yield self.reader.collated([needed[place] for place in places]), state
            first = whole.stop


class Evaluated(IterableDataset[Any]):
    """The batches of one rank in one pass; None in a last round that has no samples for it."""

    def __init__(self, reader: Reader, size: int, rank: int, ranks: int) -> None:
        self.reader, self.state = reader, State(0, 0, reader.start)
        self.size, self.rank, self.ranks = size, rank, ranks

    def __iter__(self) -> Iterator[Any]:
        coming = iter(Passes(self.reader, self.state).take, NO_MORE)
        while True:
            of_rank, rounds = [], -1
            for rounds, sample in enumerate(islice(coming, self.size * self.ranks)):
                if rounds // self.size == self.rank:
                    of_rank.append(sample)
            if rounds < 0:
                return
            yield self.reader.collated(of_rank) if of_rank else None


class Stream:
    """The training batches of samples without an index, and the position in their data set."""

    def __init__(self, reader: Reader, order: Order) -> None:
        """Read the samples of the first step, which is tried out; ``reader`` has their index then.

        Raises RefusedError on all ranks where they are not the same for all.
        """
        self.shards, self.order, whole = shards_of(reader.samples), order, reader
        if order.divided:
            reader = reader.divided(order.rank, order.world_size)
        self.reader = reader
        self.state = pickle.dumps(State(0, 0, reader.start))
        passes = Passes(reader, State())
        tried = len(order.block(0)) if order.divided else order.count(0)
        reader.first = [passes.take_on() for _ in range(tried)]
        state: State = pickle.loads(pickle.dumps(passes.state()))
        # One more than the step has: a rank with one sample looks at the next, too.
        reader.first.append(passes.take_on())
        # A state may leave something out, as a buffer in which samples are shuffled.
        self.keeps = state.samples is not None
        if self.keeps and reader.start not in (None, {}):  # else it could not be set back
            repeated = Passes(reader, state).take_on()
            self.keeps = fingerprint(repeated) == fingerprint(reader.first[-1])
        first = Passes(whole, State()).take() if order.divided else reader.first[0]
        agree(
            {f"the first sample of {reader.split!r}": fingerprint(first)},
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
        ranks = self.order.world_size
        goes_on = "goes on from their state_dict" if self.keeps else "reads the earlier ones again"
        if self.order.divided:
            return (
                f"samples without an index: each rank reads {self.shards // ranks} of "
                f"{self.shards} shards; a resumed run has {ranks} ranks too, and {goes_on}"
            )
        why = ""
        if ranks > 1:
            why = f" ({self.shards or 'no'} shards; a multiple of {ranks} would be divided)"
        return (
            f"samples without an index: every rank reads all of them{why}; steps are the same on "
            f"any number of ranks if each pass gives the same samples; a resumed run {goes_on}"
        )

    def record(self) -> tuple[Any, ...]:
        """The record that ``go_on`` takes."""
        state: State = pickle.loads(self.state)
        return tuple(state if self.keeps else state._replace(samples=None))

    def go_on(self, records: Sequence[tuple[Any, ...]]) -> None:
        """Go on from the records of all ranks; without a state the samples are read once more."""
        record = records[self.order.rank if self.order.divided else 0]
        if record[2] is not None and self.keeps:
            self.state = pickle.dumps(State(*record))

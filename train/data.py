"""Read the samples of a task, and make batches of them; ``order`` says which a batch has.

A sample is read with the generators of Python, NumPy and torch seeded from its place in the run, so
what it draws does not depend on the process that reads it, nor on what was read before.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import random
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate, default_convert

from . import rng
from .config import Config
from .distributed import agree, run_on_all_ranks
from .errors import shared_refusal
from .feed import Shipped
from .order import Batch
from .task import Samples, Task, has, name_of


def seed_sample(seed: int, split: str, place: int) -> None:
    """Seed the generators for the next sample, the same wherever and whenever it is read.

    ``place`` tells it from all others of the split. Takes some 7 microseconds; torch.manual_seed
    takes ten times that, because it seeds every kind of device.
    """
    digest = hashlib.blake2b(f"{seed} {split} {place}".encode(), digest_size=16).digest()
    number = int.from_bytes(digest, "little")
    random.seed(number >> 64)
    # Different words: both are Mersenne twisters, which take 32 bits of a seed.
    np.random.seed(number & 0xFFFFFFFF)
    torch.default_generator.manual_seed(number >> 32 & 0xFFFFFFFF)


def samples_of(task: Task, split: str, seed: int) -> Samples:
    """Make the samples of a split, with the same seed for all ranks and splits.

    So a random division into two splits is the same one for both. Raises RefusedError where there
    are no samples, or the ranks have different numbers of them.
    """
    rng.seed_alike(seed)
    samples = run_on_all_ranks(lambda: task.dataset(split))
    count = count_of(samples)
    agree(
        {f"the length of the data set {split!r}": count},
        "dataset() has to return all samples on every rank, for the loop shares them out",
    )
    wrong = ""
    if count == 0:
        wrong = "is empty"
    elif isinstance(samples, DataLoader):
        wrong = "is a DataLoader, and the loop makes the batches"
    elif isinstance(samples, Iterator) and not inspect.isfunction(type(samples).__iter__):
        wrong = "can be read only once"  # such as a generator; a class may begin again
    if wrong:
        raise shared_refusal(
            f"the data set {split!r} of the task {name_of(task)} {wrong}; return samples that "
            "len() counts, and that have an index each, or an IterableDataset"
        )
    return samples


def is_stream(samples: object) -> bool:
    """Whether the samples have no index, and can only be read one after the other."""
    indexed = hasattr(samples, "__getitem__") and not isinstance(samples, IterableDataset)
    return hasattr(samples, "__iter__") and not indexed


def state_of(samples: Any) -> Any:
    """The ``state_dict`` of a data set that can go on from one, else None."""
    goes_on = is_stream(samples) and hasattr(samples, "load_state_dict")
    return samples.state_dict() if goes_on else None


def shards_of(samples: Any) -> int:
    """The number of shards that a data set can be divided by, as those of datasets; else 0."""
    can_divide = hasattr(samples, "num_shards") and hasattr(samples, "shard")
    return int(samples.num_shards) if can_divide else 0


def count_of(samples: Any) -> int | None:
    """The number of samples; None if unknown, as for a ChainDataset where len() fails."""
    try:
        return len(samples)
    except (TypeError, NotImplementedError):
        return None


class Reader:
    """A data set that takes the samples of a whole batch and collates what it read.

    It is what goes to the loader processes: the samples, how a batch is made of them, and what
    decides the random numbers of each sample.
    """

    def __init__(self, task: Task, split: str, name: str, seed: int) -> None:
        self.split = split
        self.seed = seed
        collate = task.collate if has(task, "collate") else default_collate
        self.shipped = Shipped(name, (samples_of(task, split, seed), collate))
        self.start = copy.deepcopy(state_of(self.samples))  # before anything is read
        self.first: list[Any] | None = None  # the first samples, if the others have no index
        self.part, self.parts = 0, 1  # of a divided stream

    @property
    def samples(self) -> Samples:
        """The samples that the task's ``dataset`` returned."""
        return cast(Samples, self.shipped.content[0])

    def __len__(self) -> int:
        return len(self.samples)

    def divided(self, part: int, parts: int) -> Reader:
        """A reader of a part of a stream, in which other samples have other random numbers."""
        part_reader = copy.copy(self)
        part_reader.part, part_reader.parts = part, parts
        samples, collate = self.shipped.content
        part_reader.shipped = Shipped(self.shipped.task, (samples.shard(parts, part), collate))
        part_reader.start = copy.deepcopy(state_of(part_reader.samples))
        return part_reader

    def collated(self, samples: list[Any]) -> Any:
        """A batch of these samples, with tensors in place of arrays."""
        return default_convert(self.shipped.content[1](samples))  # type: ignore[no-untyped-call]

    def __getitem__(self, batch: Batch) -> Any:
        samples, read = self.first or self.samples, []
        for place, index in zip(*batch, strict=True):
            seed_sample(self.seed, self.split, place)
            try:
                read.append(samples[index])
            except StopIteration as error:  # which would pass for the end of the batches
                raise RuntimeError(f"sample {index} of {self.split!r} raised {error!r}") from error
        return self.collated(read)


class Readers(dict[str, Reader]):
    """The reader of each split by its name, made when it is first asked for, and once.

    A call of ``dataset`` may take minutes, and memory.
    """

    def __init__(self, task: Task, config: Config) -> None:
        super().__init__()
        self.task = task
        self.config = config

    def __missing__(self, split: str) -> Reader:
        self[split] = Reader(self.task, split, self.config.task, self.config.seed)
        return self[split]

    def describe(self) -> str:
        """Return the task's line on its data, or else the numbers of samples."""
        description = run_on_all_ranks(lambda: str(self.task.describe() or ""))
        agree({"describe()": description}, "describe() has to describe the data, and not the rank")
        counts = (count_of(self[split].samples) for split in ("train", "validation"))
        train, held_out = ("unknown" if each is None else f"{each:,}" for each in counts)
        return description or f"{train} samples to train on, {held_out} held out"

"""Turn a task's samples into batches on the device; ``order`` says which samples a batch has.

A sample is read with the generators of Python, NumPy and torch seeded from its place in the run, so
what it draws does not depend on the process that reads it, nor on what was read before.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import multiprocessing
import os
import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.random import mtrand
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate, default_convert

from . import rng
from .config import Config
from .distributed import World, agree, together
from .errors import shared_refusal
from .exit import deaf_children
from .order import Batch
from .shipping import Shipped, end_with_rank
from .task import Samples, Task, has, name_of

MOST_WORKERS = 8
NO_MORE = object()
AHEAD = 4  # batches that each loader process keeps ready


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


_of_samples = np.random.MT19937()


@contextmanager
def reading() -> Iterator[None]:
    """Read samples in this block; after it the model draws as if they had drawn nothing.

    It is used for a batch that other processes read as well: to change NumPy's generator drops the
    second half of a pair of normal numbers, which must not depend on the reader.
    """
    python, own, ours = random.getstate(), mtrand.get_bit_generator(), torch.get_rng_state()
    mtrand.set_bit_generator(_of_samples)
    try:
        yield
    finally:
        random.setstate(python)
        mtrand.set_bit_generator(own)
        torch.set_rng_state(ours)


class Recipe(NamedTuple):
    """The task and seed to make samples from, in a process that they cannot be sent to."""

    task: Task
    split: str
    seed: int

    def make(self) -> tuple[Samples, Callable[[list[Any]], Any]]:
        """Make the samples, and return the function that makes a batch of them too."""
        collate = self.task.collate if has(self.task, "collate") else default_collate
        return samples_of(self.task, self.split, self.seed), collate


def samples_of(task: Task, split: str, seed: int) -> Samples:
    """Make the samples of a split, with the same seed for all ranks and splits.

    So a random division into two splits is the same one for both. Raises RefusedError where there
    are no samples, or the ranks have different numbers of them.
    """
    rng.seed_alike(seed)
    samples = together(lambda: task.dataset(split))
    if isinstance(samples, DataLoader):
        raise shared_refusal(
            f"dataset({split!r}) of the task {name_of(task)} returned a DataLoader, and the loop "
            "makes the batches; return its dataset"
        )
    count = count_of(samples)
    agree(
        {f"the length of the data set {split!r}": count},
        "dataset() has to return all samples on every rank, for the loop shares them out",
    )
    wrong = ""
    if count == 0:
        wrong = "is empty"
    elif isinstance(samples, Iterator) and not inspect.isfunction(type(samples).__iter__):
        wrong = "can be read only once"  # such as a generator; a class may begin again
    elif not come_in_turn(samples) and (count is None or not hasattr(samples, "__getitem__")):
        wrong = "has no length" if count is None else "has no index"
    if wrong:
        raise shared_refusal(
            f"the data set {split!r} of the task {name_of(task)} {wrong}; give it samples that "
            "len() counts, and that have an index each, or an IterableDataset",
        )
    return samples


def come_in_turn(samples: object) -> bool:
    """Whether the samples have no index, and can only be read one after the other."""
    indexed = hasattr(samples, "__getitem__") and not isinstance(samples, IterableDataset)
    return hasattr(samples, "__iter__") and not indexed


def own_state(samples: Any) -> Any:
    """The ``state_dict`` of a data set that can go on from one, else None."""
    goes_on = come_in_turn(samples) and hasattr(samples, "load_state_dict")
    return samples.state_dict() if goes_on else None


def count_of(samples: Any) -> int | None:
    """The number of samples; None if unknown, as for a ChainDataset where len() fails."""
    try:
        return len(samples)
    except (TypeError, NotImplementedError):
        return None


def described(samples: Samples) -> str:
    """The number of samples in words, if it is known."""
    count = count_of(samples)
    return "samples as they come" if count is None else f"{count:,} samples"


class Reader:
    """A data set that takes the samples of a whole batch and collates what it read.

    It is what goes to the loader processes: the samples, how a batch is made of them, and what
    decides the random numbers of each sample.
    """

    def __init__(self, task: Task, split: str, name: str, seed: int) -> None:
        self.split = split
        self.seed = seed
        recipe = Recipe(task, split, seed)
        self.shipped = Shipped(name, recipe.make(), recipe)
        self.start = copy.deepcopy(own_state(self.samples))  # before anything is read
        self.first: list[Any] | None = None  # the first samples, if the others have no index

    @property
    def samples(self) -> Samples:
        """The samples that the task's ``dataset`` returned."""
        return cast(Samples, self.shipped.content[0])

    def __len__(self) -> int:
        return len(self.samples)

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


class Feed:
    """Iterates over batches on the device, which loader processes read where there are any.

    Without an ``order`` the ``reader`` has its own.
    """

    def __init__(
        self,
        reader: Reader | Dataset[Any],
        order: Iterable[Batch] | None,
        workers: int,
        device: torch.device,
    ) -> None:
        self.device = device
        several: dict[str, Any] = {}
        if workers:
            # Not fork: a forked child of a process with a communicator's threads may never wake.
            several = {
                "multiprocessing_context": multiprocessing.get_context("forkserver"),
                "persistent_workers": True,
                "prefetch_factor": AHEAD,
                "worker_init_fn": end_with_rank,
            }
            multiprocessing.set_forkserver_preload(["torch"])
            # Each rank would print it twice if it has fewer CPUs than loader processes.
            warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
        self.loader: DataLoader[Any] = DataLoader(
            cast(Any, reader),
            sampler=cast(Any, order),
            batch_size=None,
            num_workers=workers,
            pin_memory=device.type != "cpu",
            # A generator of its own: a loader draws a number when it begins, and the model's
            # dropout must not depend on how often one began.
            generator=torch.Generator(),
            **several,
        )

    def __iter__(self) -> Iterator[Any]:
        with deaf_children():
            batches = iter(self.loader)
        while True:
            with reading():
                batch = next(batches, NO_MORE)
            if batch is NO_MORE:
                return
            yield to_device(batch, self.device)


def to_device(batch: Any, device: torch.device) -> Any:
    """The batch with every tensor in it on ``device``.

    Lists, tuples, mappings and the attributes of objects are looked into; each keeps its class. An
    object with a method ``to`` is moved by it: BatchEncoding of transformers, graphs of PyTorch
    Geometric.
    """
    if isinstance(batch, Tensor):
        # From pinned memory the copy runs beside the computation that is already queued.
        return batch.to(device, non_blocking=True)
    if callable(getattr(batch, "to", None)):  # which may be a field of that name too
        return batch.to(device, **({"non_blocking": True} if _copies_beside(batch.to) else {}))
    if isinstance(batch, Mapping):
        items = {key: to_device(value, device) for key, value in batch.items()}
        if not isinstance(batch, dict):
            return items
        moved = copy.copy(batch)
        moved.update(items)
        return moved
    if isinstance(batch, (list, tuple)):
        values = [to_device(value, device) for value in batch]
        return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)
    if not (names := _attributes(batch)):
        return batch
    moved = copy.copy(batch)  # a dataclass, or a class of the task's
    for name in names:
        object.__setattr__(moved, name, to_device(getattr(batch, name), device))  # frozen ones too
    return moved


def _copies_beside(to: Callable[..., Any]) -> bool:
    """Whether a method ``to`` takes non_blocking, by that name or as a keyword of any name."""
    try:
        parameters = inspect.signature(to).parameters
    except ValueError:  # as of what is written in C
        return False
    return "non_blocking" in parameters or any(
        one.kind is one.VAR_KEYWORD for one in parameters.values()
    )


def _attributes(thing: object) -> list[str]:
    """The names of an object's own attributes, in slots too; none for a function."""
    if callable(thing):
        return []
    slots = [name for above in type(thing).__mro__ for name in getattr(above, "__slots__", ())]
    own = [name for name in slots if name[:2] != "__" and hasattr(thing, name)]
    return [*getattr(thing, "__dict__", ()), *own]


def number_on(value: Tensor | float, device: torch.device) -> Tensor:
    """Return a sum or count of a task as a tensor on ``device``.

    A single number that is elsewhere, such as ``len(batch)``, is filled in there: to copy it would
    wait for all that the device has to do before.
    """
    if not isinstance(value, Tensor) or (value.dim() == 0 and value.device.type == "cpu"):
        return torch.full((), float(value), dtype=torch.float64, device=device)
    return value.to(device)


def loader_workers(wanted: int | None, device: str, world: World, cpus: int, online: int) -> int:
    """The number of loader processes of this rank, which may run on ``cpus`` of ``online`` CPUs.

    With an accelerator they get all CPUs of the rank but one. On a CPU they would take CPUs from
    the computation, so the rank reads its samples itself.
    """
    if wanted is not None:
        return wanted
    if device == "cpu":
        return 0
    if cpus == online:  # the rank is not bound, so its neighbours have the same CPUs
        cpus //= world.local_size
    return max(1, min(cpus - 1, MOST_WORKERS))


def default_workers(wanted: int | None, device: torch.device, world: World) -> int:
    """``loader_workers`` for this process on this machine."""
    online = os.cpu_count() or 1
    known = hasattr(os, "sched_getaffinity")  # Linux
    cpus = len(os.sched_getaffinity(0)) if known else online
    return loader_workers(wanted, device.type, world, cpus, online)

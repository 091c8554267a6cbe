"""From a task's samples to batches on the device."""

from __future__ import annotations

import copy
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_collate

from . import rng
from .distributed import World
from .order import Batch
from .preemption import deaf_children
from .shipping import Shipped, end_with_rank
from .task import Collating, Samples, Task, samples_of

MOST_WORKERS = 8
NO_MORE = object()
AHEAD = 4  # batches that each loader process keeps ready


class Recipe(NamedTuple):
    """What the samples are made of, for a process that they cannot be sent to."""

    task: Task
    split: str
    seed: int

    def make(self) -> tuple[Samples, Callable[[list[Any]], Any]]:
        """The samples, and how a batch is made of them."""
        collate = self.task.collate if isinstance(self.task, Collating) else default_collate
        return samples_of(self.task, self.split, self.seed), collate


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

    def __len__(self) -> int:
        return len(self.shipped.content[0])

    def __getitem__(self, batch: Batch) -> Any:
        samples, collate = self.shipped.content
        read = []
        for place, index in zip(*batch, strict=True):
            rng.seed_sample(self.seed, self.split, place)
            read.append(samples[index])
        return collate(read)


class Feed:
    """Batches on the device, read by other processes where there are any."""

    def __init__(
        self, reader: Reader, order: Iterable[Batch], workers: int, device: torch.device
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
        self.loader: DataLoader[Any] = DataLoader(
            cast(Any, reader),
            sampler=cast(Any, order),
            batch_size=None,
            num_workers=workers,
            pin_memory=device.type == "cuda",
            # Its own: a loader draws a number to begin with, and the model's dropout must not
            # depend on how often one began.
            generator=torch.Generator(),
            **several,
        )

    def __iter__(self) -> Iterator[Any]:
        with deaf_children():
            batches = iter(self.loader)
        while True:
            with rng.reading():
                batch = next(batches, NO_MORE)
            if batch is NO_MORE:
                return
            yield to_device(batch, self.device)


def to_device(batch: Any, device: torch.device) -> Any:
    """The batch with every tensor in it on ``device``.

    Lists, tuples, mappings and the attributes of objects are looked into. What has a method ``to``
    is moved by it: BatchEncoding of transformers, graphs of PyTorch Geometric.
    """
    if isinstance(batch, Tensor):
        # From pinned memory the copy runs beside the computation that is already queued.
        return batch.to(device, non_blocking=True)
    if hasattr(batch, "to"):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {key: to_device(value, device) for key, value in batch.items()}
    if hasattr(batch, "_fields"):  # a named tuple
        return type(batch)(*(to_device(value, device) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(to_device(value, device) for value in batch)
    if hasattr(batch, "__dict__") and not callable(batch):  # a dataclass, or a class of the task's
        moved = copy.copy(batch)
        for name, value in vars(batch).items():
            object.__setattr__(moved, name, to_device(value, device))  # frozen ones too
        return moved
    return batch


def number_on(value: Tensor | float, device: torch.device) -> Tensor:
    """What a task has summed or counted, as a tensor on ``device``.

    A single number that is elsewhere, such as ``len(batch)``, is filled in there: to copy it would
    wait for all that the device has to do before.
    """
    if not isinstance(value, Tensor) or (value.dim() == 0 and value.device.type == "cpu"):
        return torch.full((), float(value), dtype=torch.float64, device=device)
    return value.to(device)


def loader_workers(wanted: int | None, device: str, world: World, cpus: int, online: int) -> int:
    """How many processes read samples for this rank, which may run on ``cpus`` of ``online`` CPUs.

    The computation of an accelerator leaves all CPUs of the rank but one to them. On a CPU they
    would take them from the computation, and the rank reads its samples itself.
    """
    if wanted is not None:
        return wanted
    if device == "cpu":
        return 0
    if cpus == online:  # nobody bound this rank, so its neighbours have the same CPUs
        cpus //= world.local_size
    return max(1, min(cpus - 1, MOST_WORKERS))


def default_workers(wanted: int | None, device: torch.device, world: World) -> int:
    """``loader_workers`` for this process on this machine."""
    online = os.cpu_count() or 1
    known = hasattr(os, "sched_getaffinity")  # Linux
    cpus = len(os.sched_getaffinity(0)) if known else online
    return loader_workers(wanted, device.type, world, cpus, online)

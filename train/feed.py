"""Bring batches to the device, read by loader processes where there are any."""

from __future__ import annotations

import copy
import copyreg
import dataclasses
import multiprocessing
import os
import pickle
import tempfile
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from multiprocessing import reduction
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from . import rng
from .commandline import task_class
from .distributed import World
from .ending import block_signals_in_children
from .errors import shared_refusal
from .order import Batch

MOST_WORKERS = 8
AHEAD = 4  # batches that each loader process keeps ready
NO_MORE = object()


class Feed:
    """Iterates over batches on the device, which loader processes read where there are any.

    Without an ``order`` the ``reader`` has its own.
    """

    def __init__(
        self, reader: Any, order: Iterable[Batch] | None, workers: int, device: torch.device
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
            reader,
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
        with block_signals_in_children():
            batches = iter(self.loader)
        while True:
            with rng.reading():
                batch = next(batches, NO_MORE)
            if batch is NO_MORE:
                return
            yield to_device(batch, self.device)


def loader_workers(wanted: int | None, device: str, world: World, cpus: int, online: int) -> int:
    """Return the loader processes of this rank, which may use ``cpus`` of ``online`` CPUs.

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


class Shipped:
    """Sends an object of a task to loader processes, which map its tensors copy-on-write.

    torch.save writes the object once, to a file without a name, in TMPDIR. A class in a file that
    was loaded by its path has no name that a child can import, so the child loads that file first.
    """

    def __init__(self, task: str, content: Any) -> None:
        self.task = task
        self.content = content
        self.file: Any = None

    def __getstate__(self) -> tuple[str, Any]:
        if self.file is None:
            self.file = tempfile.TemporaryFile()  # noqa: SIM115 - open while the loader is
            try:
                torch.save(self.content, self.file, pickle_protocol=5)
            except (pickle.PicklingError, AttributeError, TypeError, OSError) as error:
                raise shared_refusal(
                    f"--task {self.task}: its samples cannot be sent to loader processes: {error}; "
                    "use --loader-workers 0"
                ) from error
            self.file.flush()
        return self.task, reduction.DupFd(self.file.fileno())

    def __setstate__(self, state: tuple[str, Any]) -> None:
        self.task, duplicate = state
        task_class(self.task)
        descriptor = duplicate.detach()
        self.content = torch.load(f"/dev/fd/{descriptor}", mmap=True, weights_only=False)
        os.close(descriptor)


def _reduce_map(array: np.memmap[Any, Any]) -> Any:
    """Pickle a mapped array as its place in the file, but one with gaps or own changes whole."""
    root: Any = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    is_copied = getattr(root, "filename", None) is None or root.mode == "c"
    if is_copied or not array.flags.c_contiguous or not array.size:
        return np.asarray(array).__reduce_ex__(5)
    mode, offset = "r" if root.mode == "r" else "r+", root.offset + array.ctypes.data
    return np.memmap, (root.filename, array.dtype, mode, offset - root.ctypes.data, array.shape)


copyreg.pickle(np.memmap, _reduce_map)  # else each process would get a copy of the file


def end_with_rank(_worker: int) -> None:
    """End this loader process when its rank has ended, for any reason.

    It is no child of the rank but of the fork server, which in turn stays as long as it has
    children. So a thread waits on a pipe that the rank alone holds the other end of.
    """
    rank = multiprocessing.parent_process()
    assert rank is not None

    def watch() -> None:
        rank.join()
        os._exit(1)  # whatever the other threads do: their output has no reader left

    threading.Thread(target=watch, name="watch the rank", daemon=True).start()


def to_device(batch: Any, device: torch.device) -> Any:
    """Return the batch with every tensor in it on ``device``.

    Lists, tuples, mappings and dataclasses are looked into, and keep their classes. Another object
    is moved by its method ``to``, such as BatchEncoding of transformers.
    """
    if callable(getattr(batch, "to", None)):  # which may be a field of that name too
        try:
            # From pinned memory the copy runs beside the computation that is already queued.
            return batch.to(device, non_blocking=True)
        except TypeError:  # it takes a device alone
            return batch.to(device)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        moved: Any = copy.copy(batch)
        for field in dataclasses.fields(batch):  # of frozen ones too
            object.__setattr__(moved, field.name, to_device(getattr(batch, field.name), device))
        return moved
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
    return batch


def number_on(value: Tensor | float, device: torch.device) -> Tensor:
    """Return a sum or count of a task as a tensor on ``device``.

    A single number that is elsewhere, such as ``len(batch)``, is filled in there: to copy it would
    wait for all that the device has to do before.
    """
    if not isinstance(value, Tensor) or (value.dim() == 0 and value.device.type == "cpu"):
        return torch.full((), float(value), dtype=torch.float64, device=device)
    return value.to(device)

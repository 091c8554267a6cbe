"""Send samples to loader processes, which map tensors and arrays and do not copy them.

``torch.save`` writes the samples once, to a file that has no name, and each loader process maps it
copy-on-write: the processes share the pages, and a process alone sees its own changes. An array
that is mapped from a file is mapped from that file again.
"""

from __future__ import annotations

import copyreg
import multiprocessing
import os
import pickle
import tempfile
import threading
from multiprocessing import reduction
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from .errors import shared_refusal
from .find import task_class


class Shipped:
    """Wraps an object of a task to pickle it for a process that may not know the task.

    A child of multiprocessing can import what has an importable name. A class in a file that was
    loaded by its path has none, so the child loads that file before it unpickles the rest. An
    object that cannot be pickled, as one of a class inside a function, is made there again by the
    ``recipe``.
    """

    def __init__(self, task: str, content: Any, recipe: Any) -> None:
        self.task = task
        self.content = content
        self.recipe = recipe
        self.file: Any = None

    def __getstate__(self) -> tuple[str, Any]:
        self.file = self.file or self._write()
        return self.task, reduction.DupFd(self.file.fileno())

    def __setstate__(self, state: tuple[str, Any]) -> None:
        self.task, duplicate = state
        task_class(self.task)
        descriptor = duplicate.detach()
        self.content, self.recipe = torch.load(
            f"/dev/fd/{descriptor}", mmap=True, weights_only=False
        )
        os.close(descriptor)
        if self.content is None:
            self.content = self.recipe.make()

    def _write(self) -> Any:
        errors = (pickle.PicklingError, AttributeError, TypeError)
        try:
            return _save((self.content, None))
        except errors:
            try:
                return _save((None, self.recipe))
            except errors as error:
                raise shared_refusal(
                    f"--task {self.task}: neither its samples nor the task can be sent to loader "
                    f"processes: {error}; type --loader-workers 0",
                ) from error


def _save(content: Any) -> Any:
    """Write to a file in memory where the system has such files, else to a temporary file."""
    if hasattr(os, "memfd_create"):  # Linux
        file: Any = os.fdopen(os.memfd_create("samples"), "w+b")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115
    torch.save(content, file, SimpleNamespace(Pickler=_Pickler, __name__="pickle"), 5)
    file.flush()
    return file


def _reduce_array(array: np.ndarray[Any, Any]) -> Any:
    """An array as a tensor, which is mapped; of a kind that no tensor has, as NumPy pickles it."""
    try:
        return _array, (torch.from_numpy(array.view(np.ndarray)),)
    except (TypeError, ValueError):
        return array.__reduce_ex__(5)


def _array(values: torch.Tensor) -> Any:
    return values.numpy()


def _reduce_map(array: np.memmap[Any, Any]) -> Any:
    """Pickle a mapped array as its place in the file; one with changes of its own is sent whole."""
    root: Any = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    file = getattr(root, "filename", None)
    if file is None or root.mode == "c" or not os.path.exists(file):
        return _reduce_array(array)
    begin = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    where = (str(file), "r" if root.mode == "r" else "r+", root.offset, root.nbytes)
    return _map, (*where, begin, array.dtype, array.shape, array.strides)


def _map(file: str, mode: Any, offset: int, size: int, begin: int, *layout: Any) -> Any:
    dtype, shape, strides = layout
    data: Any = np.memmap(file, np.uint8, mode, offset, (size,))
    return np.ndarray.__new__(np.memmap, shape, dtype, data, begin, strides)


class _Pickler(pickle.Pickler):
    dispatch_table = copyreg.dispatch_table | {np.ndarray: _reduce_array, np.memmap: _reduce_map}


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
